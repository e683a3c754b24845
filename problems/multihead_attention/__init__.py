"""Attention between two sequences."""

from problems.multihead_attention.steps import follow_multihead_of_two
from whichline.engine.room import Room

ROOM = Room(steps={"run_multihead_attention": follow_multihead_of_two})

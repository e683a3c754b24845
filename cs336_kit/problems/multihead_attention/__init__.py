"""Attention between two sequences."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.multihead_attention.steps import follow_multihead_of_two

ROOM = Room(steps={"run_multihead_attention": follow_multihead_of_two})

"""Attention between two sequences."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.multihead_attention.examination import examine_cross_attention
from cs336_kit.problems.multihead_attention.on_earlier import multihead_of_two_on

ROOM = Room(
    examinations={"run_multihead_attention": examine_cross_attention},
    on_earlier={"run_multihead_attention": multihead_of_two_on},
)

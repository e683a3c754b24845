"""The linear layer."""

from functools import partial

from cs336_kit.engine.room import Room
from cs336_kit.problems.linear.examination import examine_linear
from cs336_kit.problems.linear.program import TABLE
from cs336_kit.problems.linear.steps import follow_linear

ROOM = Room(
    examinations={"run_linear": examine_linear},
    steps={"run_linear": follow_linear},
    right={"run_linear": partial(TABLE.call, [])},
)

"""The linear layer."""

from functools import partial

from cs336_kit.engine.room import Room
from cs336_kit.problems.linear.examination import examine_linear
from cs336_kit.problems.linear.program import TABLE

ROOM = Room(examinations={"run_linear": examine_linear}, right={"run_linear": partial(TABLE.call, [])})

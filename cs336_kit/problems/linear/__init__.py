"""The linear layer."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.linear.steps import follow_linear

ROOM = Room(steps={"run_linear": follow_linear})

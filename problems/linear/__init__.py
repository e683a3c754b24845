"""The linear layer."""

from problems.linear.steps import follow_linear
from whichline.engine.room import Room

ROOM = Room(steps={"run_linear": follow_linear})

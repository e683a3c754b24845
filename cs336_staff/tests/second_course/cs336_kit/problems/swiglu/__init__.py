"""SwiGLU."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.swiglu.steps import follow_swiglu

ROOM = Room(steps={"run_swiglu": follow_swiglu})

"""RMSNorm."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.rmsnorm.steps import follow_rmsnorm

ROOM = Room(steps={"run_rmsnorm": follow_rmsnorm})

"""Cross-entropy."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.cross_entropy.steps import follow_cross_entropy

ROOM = Room(steps={"run_cross_entropy": follow_cross_entropy})

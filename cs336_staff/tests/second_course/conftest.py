"""What is laid over the engine is no test of this tree."""

collect_ignore = ["tests", "cs336_staff"]

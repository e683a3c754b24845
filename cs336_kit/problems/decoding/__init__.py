"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.decoding.steps import follow_decoding

ROOM = Room(steps={"run_decoding": follow_decoding})

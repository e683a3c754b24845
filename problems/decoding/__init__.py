"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from problems.decoding.steps import follow_decoding
from whichline.engine.room import Room

ROOM = Room(steps={"run_decoding": follow_decoding})

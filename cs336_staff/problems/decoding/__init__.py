"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.decoding.cases import HIDDEN, PUBLIC
from cs336_staff.problems.decoding.reference import CACHED, run_decoding

ROOM = Room(
    answers=[run_decoding],
    public=PUBLIC,
    hidden=HIDDEN,
    outputs=("answer", *CACHED),
)

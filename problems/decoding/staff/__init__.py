"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from problems.decoding.staff.cases import HIDDEN, PUBLIC
from problems.decoding.staff.reference import CACHED, run_decoding
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_decoding],
    public=PUBLIC,
    hidden=HIDDEN,
    outputs=("answer", *CACHED),
)

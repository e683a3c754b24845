"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from cs336_staff.authoring.room import Room, wrong_steps
from cs336_staff.problems.decoding.cases import HIDDEN, PUBLIC
from cs336_staff.problems.decoding.program import OF_HEADS, OWN, RIGHT, decode
from cs336_staff.problems.decoding.reference import CACHED, run_decoding
from cs336_staff.problems.multihead_self_attention.programs import in_steps

ROOM = Room(
    answers=[run_decoding],
    public=PUBLIC,
    hidden=HIDDEN,
    build=in_steps(decode, RIGHT),
    adapters=lambda decoding: {"run_decoding": decoding},
    mistakes=tuple(wrong_steps("decoding", (*OWN, *OF_HEADS))),
    outputs=("answer", *CACHED),
)

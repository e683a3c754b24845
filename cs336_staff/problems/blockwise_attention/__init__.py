"""Blockwise attention."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.blockwise_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.blockwise_attention.reference import run_blockwise_attention

ROOM = Room(
    answers=[run_blockwise_attention],
    public=PUBLIC,
    hidden=HIDDEN,
)

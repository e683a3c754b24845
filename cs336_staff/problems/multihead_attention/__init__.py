"""Multi-head attention of one sequence on another."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_attention.reference import run_multihead_attention

ROOM = Room(
    answers=[run_multihead_attention],
    public=PUBLIC,
    hidden=HIDDEN,
)

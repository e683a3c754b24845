"""Blockwise attention."""

from problems.blockwise_attention.staff.cases import HIDDEN, PUBLIC
from problems.blockwise_attention.staff.reference import run_blockwise_attention
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_blockwise_attention],
    public=PUBLIC,
    hidden=HIDDEN,
)

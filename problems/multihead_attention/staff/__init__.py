"""Multi-head attention of one sequence on another."""

from problems.multihead_attention.staff.cases import HIDDEN, PUBLIC
from problems.multihead_attention.staff.reference import run_multihead_attention
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_multihead_attention],
    public=PUBLIC,
    hidden=HIDDEN,
)

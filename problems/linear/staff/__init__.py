"""The linear layer."""

from problems.linear.staff.cases import HIDDEN, PUBLIC
from problems.linear.staff.reference import run_linear
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_linear],
    public=PUBLIC,
    hidden=HIDDEN,
)

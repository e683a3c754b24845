"""Softmax."""

from problems.softmax.staff.cases import HIDDEN, PUBLIC
from problems.softmax.staff.reference import run_softmax
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_softmax],
    public=PUBLIC,
    hidden=HIDDEN,
)

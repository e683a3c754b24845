"""Rotary position embedding."""

from problems.rope.staff.cases import HIDDEN, PUBLIC
from problems.rope.staff.reference import run_rope
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_rope],
    public=PUBLIC,
    hidden=HIDDEN,
)

"""The linear layer."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.linear.cases import HIDDEN, PUBLIC
from cs336_staff.problems.linear.reference import run_linear

ROOM = Room(
    answers=[run_linear],
    public=PUBLIC,
    hidden=HIDDEN,
)

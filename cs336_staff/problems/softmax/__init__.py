"""Softmax."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.softmax.cases import HIDDEN, PUBLIC
from cs336_staff.problems.softmax.reference import run_softmax

ROOM = Room(
    answers=[run_softmax],
    public=PUBLIC,
    hidden=HIDDEN,
)

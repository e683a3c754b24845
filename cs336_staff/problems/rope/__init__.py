"""Rotary position embedding."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.rope.cases import HIDDEN, PUBLIC
from cs336_staff.problems.rope.reference import run_rope

ROOM = Room(
    answers=[run_rope],
    public=PUBLIC,
    hidden=HIDDEN,
)

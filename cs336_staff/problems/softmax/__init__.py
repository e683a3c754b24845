"""Softmax."""

from functools import partial

from cs336_staff.authoring.room import Room, whole
from cs336_staff.problems.softmax.cases import HIDDEN, PUBLIC
from cs336_staff.problems.softmax.mistakes import MISTAKES
from cs336_staff.problems.softmax.program import TABLE
from cs336_staff.problems.softmax.programs import STYLES, softmax_in_steps
from cs336_staff.problems.softmax.reference import run_softmax

ROOM = Room(
    answers=[run_softmax],
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(softmax_in_steps),
    adapters=lambda softmax: {"run_softmax": lambda in_features, dim: softmax(in_features, dim)},
    styles={style: whole(program) for style, program in STYLES.items()},
    mistakes=MISTAKES,
    table=TABLE,
    telling=("test_softmax[2d-first-dim]", "test_softmax[3d-middle-dim]", "test_softmax[3d-last-dim]"),
)

"""The linear layer."""

from functools import partial

from cs336_staff.authoring.room import Room, whole
from cs336_staff.problems.linear.cases import HIDDEN, PUBLIC
from cs336_staff.problems.linear.mistakes import MISTAKES
from cs336_staff.problems.linear.program import TABLE
from cs336_staff.problems.linear.programs import STYLES, linear_in_steps
from cs336_staff.problems.linear.reference import run_linear

ROOM = Room(
    answers=[run_linear],
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(linear_in_steps),
    adapters=lambda linear: {"run_linear": lambda d_in, d_out, weights, in_features: linear(in_features, weights)},
    styles={style: whole(program) for style, program in STYLES.items()},
    mistakes=MISTAKES,
    table=TABLE,
    telling=("test_linear[3d]", "test_linear[square]"),
)

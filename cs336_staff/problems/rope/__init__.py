"""Rotary position embedding."""

from functools import partial

from cs336_staff.authoring.room import Room, whole
from cs336_staff.problems.rope.cases import HIDDEN, PUBLIC
from cs336_staff.problems.rope.mistakes import MISTAKES
from cs336_staff.problems.rope.program import TABLE
from cs336_staff.problems.rope.programs import STYLES, rotate_in_steps
from cs336_staff.problems.rope.reference import run_rope

ROOM = Room(
    answers=[run_rope],
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(rotate_in_steps),
    adapters=lambda rotate: {
        "run_rope": lambda d_k, theta, max_seq_len, in_query_or_key, token_positions: rotate(
            in_query_or_key, token_positions, theta
        )
    },
    styles={style: whole(program) for style, program in STYLES.items()},
    mistakes=MISTAKES,
    table=TABLE,
    telling=("test_rope[spaced]", "test_rope[permuted]", "test_rope[per-batch]"),
)

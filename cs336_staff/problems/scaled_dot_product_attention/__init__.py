"""Scaled dot-product attention."""

from functools import partial

from cs336_staff.authoring.room import Room, whole
from cs336_staff.problems.scaled_dot_product_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.scaled_dot_product_attention.figure import FIGURE
from cs336_staff.problems.scaled_dot_product_attention.mistakes import MISTAKES
from cs336_staff.problems.scaled_dot_product_attention.program import TABLE
from cs336_staff.problems.scaled_dot_product_attention.programs import STYLES, attention
from cs336_staff.problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention

ROOM = Room(
    answers=[run_scaled_dot_product_attention],
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(attention, softmax=lambda S: earlier["softmax"](S, -1)),
    adapters=lambda attention: {
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: attention(Q, K, V, mask)
    },
    styles={style: whole(program) for style, program in STYLES.items()},
    mistakes=MISTAKES,
    figure=FIGURE,
    table=TABLE,
    telling=(
        "test_scaled_dot_product_attention[3d-no-mask]",
        "test_scaled_dot_product_attention[3d-causal]",
        "test_scaled_dot_product_attention[3d-square]",
        "test_4d_scaled_dot_product_attention[4d-no-mask]",
    ),
    # A finite number in the place of -inf is found by its size, or by what becomes of a row that is hidden throughout.
)

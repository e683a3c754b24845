"""Attention as a module, with dropout on its weights."""

from problems.attention_module.staff.cases import HIDDEN, PUBLIC
from problems.attention_module.staff.reference import run_scaled_dot_product_attention_module
from problems.scaled_dot_product_attention.staff.reference import WEIGHTS
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_scaled_dot_product_attention_module],
    public=PUBLIC,
    hidden=HIDDEN,
    sentences=(
        (
            r"the weights that are kept are multiplied by .*, expected",
            "the weights that are kept should be multiplied by",
        ),
        (r".* of the weights are dropped, expected (.*)", r"the share of the weights that is dropped is not \1"),
    ),
    outputs=("answer", WEIGHTS),
)

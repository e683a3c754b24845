"""Attention as a module, with dropout on its weights."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.attention_module.cases import HIDDEN, PUBLIC
from cs336_staff.problems.attention_module.reference import run_scaled_dot_product_attention_module
from cs336_staff.problems.scaled_dot_product_attention.reference import WEIGHTS

ROOM = Room(
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

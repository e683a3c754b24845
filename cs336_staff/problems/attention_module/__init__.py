"""Attention as a module, with dropout on its weights."""

from functools import partial

from cs336_staff.authoring.room import Build, Part, Room
from cs336_staff.problems.attention_module.cases import HIDDEN, PUBLIC
from cs336_staff.problems.attention_module.mistakes import MISTAKES
from cs336_staff.problems.attention_module.programs import STYLES, drop, dropping, module
from cs336_staff.problems.attention_module.reference import run_scaled_dot_product_attention_module
from cs336_staff.problems.scaled_dot_product_attention.reference import WEIGHTS


def with_drop(drop: Part) -> Build:
    """Builds the module on any attention, dropping weights like this."""
    return lambda earlier: partial(module, attend=dropping(drop, earlier["scaled_dot_product_attention"]))


ROOM = Room(
    answers=[run_scaled_dot_product_attention_module],
    public=PUBLIC,
    hidden=HIDDEN,
    build=with_drop(drop),
    adapters=lambda module: {"run_scaled_dot_product_attention_module": module},
    styles={style: with_drop(drop) for style, drop in STYLES.items()},
    mistakes=MISTAKES,
    sentences=(
        (
            r"the weights that are kept are multiplied by .*, expected",
            "the weights that are kept should be multiplied by",
        ),
        (r".* of the weights are dropped, expected (.*)", r"the share of the weights that is dropped is not \1"),
    ),
    outputs=("answer", WEIGHTS),
)

"""Attention as a module, with dropout on its weights."""

from problems.attention_module.judge import WEIGHTS
from problems.attention_module.staff.cases import HIDDEN, PUBLIC
from whichline_grader.authoring.spec import ProblemSpec

SPEC = ProblemSpec(
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

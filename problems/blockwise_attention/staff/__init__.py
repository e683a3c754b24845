"""Blockwise attention."""

from problems.blockwise_attention.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_blockwise_attention", PUBLIC, ("Q", "K", "V")),
    hidden=specs("run_blockwise_attention", HIDDEN, ("Q", "K", "V")),
)

"""Multi-head attention of one sequence on another."""

from problems.multihead_attention.staff.cases import GRADIENTS, HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_multihead_attention", PUBLIC, GRADIENTS),
    hidden=specs("run_multihead_attention", HIDDEN),
)

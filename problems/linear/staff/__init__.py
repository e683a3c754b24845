"""The linear layer."""

from problems.linear.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(public=specs("run_linear", PUBLIC), hidden=specs("run_linear", HIDDEN))

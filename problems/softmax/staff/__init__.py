"""Softmax."""

from problems.softmax.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_softmax", PUBLIC, ("in_features",)), hidden=specs("run_softmax", HIDDEN, ("in_features",))
)

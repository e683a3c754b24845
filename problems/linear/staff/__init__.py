"""The linear layer."""

from problems.linear.staff.cases import HIDDEN, PUBLIC
from whichline_grader.authoring.spec import ProblemSpec

SPEC = ProblemSpec(
    public=PUBLIC,
    hidden=HIDDEN,
)

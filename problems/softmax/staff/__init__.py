"""Softmax."""

from problems.softmax.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec

SPEC = ProblemSpec(public=PUBLIC, hidden=HIDDEN)

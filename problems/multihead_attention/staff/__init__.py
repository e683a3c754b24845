"""Multi-head attention of one sequence on another."""

from problems.multihead_attention.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec

SPEC = ProblemSpec(public=PUBLIC, hidden=HIDDEN)

"""Attention as a module, with dropout on its weights."""

from problems.attention_module.judge import WEIGHTS
from problems.attention_module.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec

SPEC = ProblemSpec(public=PUBLIC, hidden=HIDDEN, outputs=("answer", WEIGHTS))

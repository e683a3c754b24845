"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from problems.decoding.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec

SPEC = ProblemSpec(public=PUBLIC, hidden=HIDDEN, outputs=("answer", "cached keys", "cached values"))

"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from problems.decoding.staff.cases import GRADIENTS, HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_decoding", PUBLIC, GRADIENTS),
    hidden=specs("run_decoding", HIDDEN, GRADIENTS),
    outputs=("answer", "cached keys", "cached values"),
)

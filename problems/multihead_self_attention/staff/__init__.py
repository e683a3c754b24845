"""Causal multi-head self-attention, without and with rotary position embedding."""

from problems.multihead_self_attention.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec

SPEC = ProblemSpec(public=PUBLIC, hidden=HIDDEN)

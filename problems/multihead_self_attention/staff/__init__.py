"""Causal multi-head self-attention, without and with rotary position embedding."""

from problems.multihead_self_attention.staff import cases
from whichline_grader.author import ProblemSpec, specs

PLAIN, WITH_ROPE = "run_multihead_self_attention", "run_multihead_self_attention_with_rope"
X = ("in_features",)
SPEC = ProblemSpec(
    public=specs(PLAIN, cases.PUBLIC, X) + specs(WITH_ROPE, cases.PUBLIC_WITH_ROPE, X),
    hidden=specs(PLAIN, cases.HIDDEN, X) + specs(WITH_ROPE, cases.HIDDEN_WITH_ROPE, X),
)

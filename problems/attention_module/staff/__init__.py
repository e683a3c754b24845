"""Attention as a module, with dropout on its weights."""

from problems.attention_module.judge import WEIGHTS
from problems.attention_module.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_scaled_dot_product_attention_module", PUBLIC, ("Q", "K", "V")),
    hidden=specs("run_scaled_dot_product_attention_module", HIDDEN),
    outputs=("answer", WEIGHTS),
)

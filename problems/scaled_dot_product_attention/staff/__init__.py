"""Scaled dot-product attention."""

from problems.scaled_dot_product_attention.reference import attention_scores
from problems.scaled_dot_product_attention.staff.cases import HIDDEN, PUBLIC
from problems.scaled_dot_product_attention.staff.figure import FIGURE
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    helpers=[attention_scores],
    public=specs("run_scaled_dot_product_attention", PUBLIC, ("Q", "K", "V")),
    hidden=specs("run_scaled_dot_product_attention", HIDDEN, ("Q", "K", "V")),
    figure=FIGURE,
)

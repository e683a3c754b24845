"""Scaled dot-product attention."""

from problems.scaled_dot_product_attention.staff.cases import HIDDEN, PUBLIC
from problems.scaled_dot_product_attention.staff.figure import FIGURE
from problems.scaled_dot_product_attention.staff.reference import (
    attention_scores,
    run_scaled_dot_product_attention,
)
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_scaled_dot_product_attention],
    helpers=[attention_scores],
    public=PUBLIC,
    hidden=HIDDEN,
    figure=FIGURE,
)

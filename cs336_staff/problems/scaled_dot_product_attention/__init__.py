"""Scaled dot-product attention."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.scaled_dot_product_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.scaled_dot_product_attention.figure import FIGURE
from cs336_staff.problems.scaled_dot_product_attention.reference import (
    attention_scores,
    run_scaled_dot_product_attention,
)

ROOM = Room(
    answers=[run_scaled_dot_product_attention],
    helpers=[attention_scores],
    public=PUBLIC,
    hidden=HIDDEN,
    figure=FIGURE,
)

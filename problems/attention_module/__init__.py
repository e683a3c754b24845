"""Attention as a module."""

from problems.attention_module.steps import follow_module
from problems.scaled_dot_product_attention import tell_query
from whichline.engine.room import Room

ROOM = Room(steps={"run_scaled_dot_product_attention_module": follow_module}, on_paper=tell_query)

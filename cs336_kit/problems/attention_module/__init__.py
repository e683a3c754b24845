"""Attention as a module."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.attention_module.steps import follow_module
from cs336_kit.problems.scaled_dot_product_attention import tell_query

ROOM = Room(steps={"run_scaled_dot_product_attention_module": follow_module}, on_paper=tell_query)

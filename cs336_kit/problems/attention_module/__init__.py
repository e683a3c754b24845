"""Attention as a module."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.attention_module.examination import examine_attention_module
from cs336_kit.problems.attention_module.on_earlier import module
from cs336_kit.problems.scaled_dot_product_attention import tell_query

ROOM = Room(
    examinations={"run_scaled_dot_product_attention_module": examine_attention_module},
    on_paper=tell_query,
    on_earlier={"run_scaled_dot_product_attention_module": module},
)

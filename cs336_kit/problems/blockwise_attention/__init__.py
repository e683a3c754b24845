"""Blockwise attention."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.blockwise_attention.steps import follow_blockwise
from cs336_kit.problems.scaled_dot_product_attention import tell_query

ROOM = Room(steps={"run_blockwise_attention": follow_blockwise}, on_paper=tell_query)

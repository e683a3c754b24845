"""Blockwise attention."""

from problems.blockwise_attention.steps import follow_blockwise
from problems.scaled_dot_product_attention import tell_query
from whichline.engine.room import Room

ROOM = Room(steps={"run_blockwise_attention": follow_blockwise}, on_paper=tell_query)

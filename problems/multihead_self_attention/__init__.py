"""Causal multi-head self-attention."""

from problems.multihead_self_attention.steps import follow_multihead
from whichline.engine.room import Room

ROOM = Room(
    steps={
        "run_multihead_self_attention": follow_multihead,
        "run_multihead_self_attention_with_rope": follow_multihead,
    }
)

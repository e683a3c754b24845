"""Causal multi-head self-attention."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.multihead_self_attention.steps import follow_multihead

ROOM = Room(
    steps={
        "run_multihead_self_attention": follow_multihead,
        "run_multihead_self_attention_with_rope": follow_multihead,
    }
)

"""Causal multi-head self-attention."""

from cs336_kit.engine.room import Room
from cs336_kit.problems.multihead_self_attention.examination import examine_multihead, examine_multihead_with_rope
from cs336_kit.problems.multihead_self_attention.on_earlier import multihead_on
from cs336_kit.problems.multihead_self_attention.steps import follow_multihead

ROOM = Room(
    steps={
        "run_multihead_self_attention": follow_multihead,
        "run_multihead_self_attention_with_rope": follow_multihead,
    },
    examinations={
        "run_multihead_self_attention": examine_multihead,
        "run_multihead_self_attention_with_rope": examine_multihead_with_rope,
    },
    on_earlier={"run_multihead_self_attention": multihead_on, "run_multihead_self_attention_with_rope": multihead_on},
)

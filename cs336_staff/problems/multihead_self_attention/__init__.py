"""Causal multi-head self-attention, without and with rotary position embedding."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_self_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_self_attention.mistakes import MISTAKES
from cs336_staff.problems.multihead_self_attention.program import RIGHT, multihead
from cs336_staff.problems.multihead_self_attention.programs import in_steps
from cs336_staff.problems.multihead_self_attention.reference import (
    run_multihead_self_attention,
    run_multihead_self_attention_with_rope,
)

ROOM = Room(
    answers=[run_multihead_self_attention, run_multihead_self_attention_with_rope],
    public=PUBLIC,
    hidden=HIDDEN,
    build=in_steps(multihead, RIGHT),
    adapters=lambda multihead: {
        "run_multihead_self_attention": multihead,
        "run_multihead_self_attention_with_rope": multihead,
    },
    mistakes=MISTAKES,
    telling=("test_multihead_self_attention[3d]", "test_multihead_self_attention_with_rope[per-batch]"),
)

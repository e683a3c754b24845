"""Causal multi-head self-attention, without and with rotary position embedding."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_self_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_self_attention.reference import (
    run_multihead_self_attention,
    run_multihead_self_attention_with_rope,
)

ROOM = Room(
    answers=[run_multihead_self_attention, run_multihead_self_attention_with_rope],
    public=PUBLIC,
    hidden=HIDDEN,
)

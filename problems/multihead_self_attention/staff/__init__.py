"""Causal multi-head self-attention, without and with rotary position embedding."""

from problems.multihead_self_attention.staff.cases import HIDDEN, PUBLIC
from problems.multihead_self_attention.staff.reference import (
    run_multihead_self_attention,
    run_multihead_self_attention_with_rope,
)
from whichline_grader.authoring.room import StaffRoom

ROOM = StaffRoom(
    answers=[run_multihead_self_attention, run_multihead_self_attention_with_rope],
    public=PUBLIC,
    hidden=HIDDEN,
)

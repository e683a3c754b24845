"""Causal multi-head self-attention, without and with rotary position embedding."""

from functools import partial

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_self_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_self_attention.mistakes import MISTAKES
from cs336_staff.problems.multihead_self_attention.programs import multihead
from cs336_staff.problems.multihead_self_attention.reference import (
    bound_multihead_self_attention,
    bound_multihead_self_attention_with_rope,
    run_multihead_self_attention,
    run_multihead_self_attention_with_rope,
)

ROOM = Room(
    answers={
        run_multihead_self_attention: bound_multihead_self_attention,
        run_multihead_self_attention_with_rope: bound_multihead_self_attention_with_rope,
    },
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(
        multihead,
        attention=earlier["scaled_dot_product_attention"],
        linear=earlier["linear"],
        rotate=earlier["rope"],
    ),
    adapters=lambda multihead: {
        "run_multihead_self_attention": multihead,
        "run_multihead_self_attention_with_rope": multihead,
    },
    mistakes=MISTAKES,
)

"""Causal multi-head attention that is wrong: mistakes in its steps, but for those of attention.

A score of 0 that is taken for a hidden one is not among them: no input of the tests gives such a score.
"""

from cs336_staff.authoring.room import wrong_steps
from cs336_staff.problems.multihead_self_attention.program import (
    ALLOWED,
    BY_POSITION,
    IN_HEADS,
    OF_ROPE,
    POSITIONS,
    ROTATE,
    TURN,
)

MISTAKES = (
    *wrong_steps("multihead", (*IN_HEADS, *ALLOWED)),
    *wrong_steps(
        "multihead", (*BY_POSITION, *TURN, *POSITIONS, *ROTATE, *OF_ROPE), only="run_multihead_self_attention_with_rope"
    ),
)

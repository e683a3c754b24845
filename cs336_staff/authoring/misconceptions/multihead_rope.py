"""Multi-head attention that uses RoPE in another place, or at other positions."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import (
    Misconception,
    count_positions,
    in_multihead,
    merge,
    multihead,
    rotate,
    split,
)
from cs336_staff.authoring.misconceptions.rope_angles import turned

PLACE_HINT = (
    "To which of Q, K and V does RoPE belong, and at what moment: before the split into heads, after it, or later?"
)
POSITION_HINT = "Shift all token positions by 5, then only the last one. Which of the two should change your answer?"


def over_d_model(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    at = positions if positions.ndim == 1 else positions.squeeze(-2)
    return split(rotate(merge(x), at, theta), x.shape[-3])


def exponent_over_d_model(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    exponents = -torch.arange(0, x.shape[-1], 2) / (x.shape[-1] * x.shape[-3])
    return turned(x, positions.unsqueeze(-1) * theta**exponents)


def along_heads(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return rotate(x.transpose(-3, -2), positions, theta).transpose(-3, -2)


def rotated_afterwards(theta: float, token_positions: Tensor | None = None, **arguments) -> Tensor:
    def rotate_and_merge(heads: Tensor) -> Tensor:
        return merge(rotate(heads, count_positions(token_positions, heads.shape[-2]), theta))

    return multihead(merge=rotate_and_merge, **arguments)


ENTRIES = (
    in_multihead("multihead-rope-missing", "you did not use RoPE", PLACE_HINT, turn=lambda Q, K, V, rotate: (Q, K, V)),
    in_multihead(
        "multihead-rope-on-values",
        "you rotated the values too",
        PLACE_HINT,
        turn=lambda Q, K, V, rotate: (rotate(Q), rotate(K), rotate(V)),
    ),
    in_multihead(
        "multihead-rope-on-queries-only",
        "you rotated the queries and not the keys",
        PLACE_HINT,
        turn=lambda Q, K, V, rotate: (rotate(Q), K, V),
    ),
    Misconception(
        "multihead-rope-after-attention",
        "you rotated what attention gave, not the queries and keys that go into it",
        PLACE_HINT,
        "multihead_self_attention",
        {"run_multihead_self_attention_with_rope": rotated_afterwards},
    ),
    in_multihead(
        "multihead-rope-over-d_model",
        "you rotated the whole of d_model before the split into heads",
        PLACE_HINT,
        rotate=over_d_model,
    ),
    in_multihead(
        "multihead-rope-exponent-d_model",
        "the exponent of theta divides by d_model, not by d_head",
        "How many pairs has one head, and by which angle does its last pair turn at position 1?",
        rotate=exponent_over_d_model,
    ),
    in_multihead(
        "multihead-rope-along-heads",
        "you gave the positions to the heads, not to the tokens",
        "Which axis of the tensor that you rotate is the sequence? Which one does RoPE take for it?",
        rotate=along_heads,
    ),
    in_multihead(
        "multihead-positions-ignored",
        "you counted positions from 0 although token positions were given",
        POSITION_HINT,
        positions=lambda given, length: torch.arange(length),
    ),
    in_multihead(
        "multihead-no-default-positions",
        "you left RoPE out when no token positions are given",
        "What should the positions be when nobody gives any?",
        positions=lambda given, length: torch.zeros(length) if given is None else given.unsqueeze(-2),
    ),
    in_multihead(
        "multihead-positions-by-head",
        "positions of each sequence meet the axis of the heads",
        "Queries have the axes (batch, head, sequence, d). Which axes have the positions, and which is missing?",
        positions=lambda given, length: torch.arange(length) if given is None else given,
    ),
)

"""Attention that is wrong: mistakes in its steps, and what no numbers show."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.room import wrong, wrong_steps
from cs336_staff.problems.scaled_dot_product_attention.program import CUTS, TABLE
from cs336_staff.problems.scaled_dot_product_attention.programs import attention
from cs336_staff.problems.softmax.programs import softmax


def three_dimensions(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    batch, _, _ = Q.shape
    masks = [None] * batch if mask is None else mask.expand(batch, -1, -1)
    return torch.stack([attention(*each) for each in zip(Q, K, V, masks, strict=True)])


def scaling_in_place(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    Q /= math.sqrt(Q.shape[-1])
    return attention(Q, K, V, mask, scale=lambda Q, K, V: 1.0)


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        raise TypeError("bad operand type for unary ~: 'NoneType'")
    return attention(Q, K, V, mask)


MISTAKES = (
    *wrong_steps("attention", TABLE.changes),
    wrong("attention-mask-required", required),
    wrong("attention-three-dimensions", three_dimensions),
    wrong("attention-in-place", scaling_in_place),
    wrong("attention-dropout", softmax=lambda S: F.dropout(softmax(S, -1), 0.1), alone=True),
    wrong("attention-float64-out", lambda Q, K, V, mask: attention(Q.double(), K.double(), V.double(), mask)),
    wrong("attention-float32-out", lambda Q, K, V, mask: attention(Q.float(), K.float(), V.float(), mask)),
    *wrong_steps("attention", CUTS),
    wrong("attention-detached", lambda Q, K, V, mask: attention(Q, K, V, mask).detach()),
)

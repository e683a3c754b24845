"""Causal multi-head self-attention, put together from parts that can be exchanged: every default is right."""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.linear.programs import linear
from cs336_staff.problems.rope.programs import rotate
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, causal


def split(x: Tensor, num_heads: int) -> Tensor:
    return rearrange(x, "... sequence (head d) -> ... head sequence d", head=num_heads)


def merge(x: Tensor) -> Tensor:
    return rearrange(x, "... head sequence d -> ... sequence (head d)")


def count_positions(given: Tensor | None, length: int) -> Tensor:
    """Positions that fit (..., head, sequence)."""
    return torch.arange(length) if given is None else given.unsqueeze(-2)


def turn(Q: Tensor, K: Tensor, V: Tensor, rotate: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return rotate(Q), rotate(K), V


def multihead(
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
    theta: float | None = None,
    *,
    weights: Part = lambda Q, K, V, num_heads: (Q, K, V),
    linear: Part = linear,
    split: Part = split,
    positions: Part = count_positions,
    rotate: Part = rotate,
    turn: Part = turn,
    mask: Part = lambda length: causal(length, length),
    attention: Part = attention,
    merge: Part = merge,
    output: Part | None = None,
    **sizes: int,
) -> Tensor:
    """Causal self-attention, with RoPE where theta is given; the parts are in the order in which they are used."""
    projections = weights(q_proj_weight, k_proj_weight, v_proj_weight, num_heads)
    Q, K, V = (split(linear(in_features, W), num_heads) for W in projections)
    length = in_features.shape[-2]
    if theta is not None:
        at = positions(token_positions, length)
        Q, K, V = turn(Q, K, V, lambda x: rotate(x, at, theta))
    heads = attention(Q, K, V, mask(length))
    return (output or linear)(merge(heads), o_proj_weight)

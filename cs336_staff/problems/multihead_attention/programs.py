"""Attention between two sequences, as right programs compute it."""

from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.multihead_self_attention.programs import merge, split


def for_heads(mask: Tensor, query: Tensor) -> Tensor:
    """A padding mask, or a mask for all heads, as one that broadcasts to (..., heads, queries, keys)."""
    if mask.ndim < query.ndim:
        mask = mask.unsqueeze(-2)
    return mask.unsqueeze(-3) if mask.ndim == query.ndim else mask


def multihead_of_two(
    attention: Part,
    linear: Part,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    for_heads: Part = for_heads,
    **sizes: int,
) -> Tensor:
    pairs = ((query, q_proj_weight), (key, k_proj_weight), (value, v_proj_weight))
    Q, K, V = (split(linear(x, W), num_heads) for x, W in pairs)
    heads = attention(Q, K, V, None if mask is None else for_heads(mask, query))
    return linear(merge(heads), o_proj_weight)

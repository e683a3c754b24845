"""What multi-head attention between two sequences gives in float64."""

from collections.abc import Sequence

from torch import Tensor

from problems.attention_module.staff.reference import run_scaled_dot_product_attention_module
from problems.multihead_self_attention.staff.reference import average_heads


def run_multihead_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    masks = masks_of_heads(num_heads, query, mask)
    return average_heads(num_heads, *weights, query, key, value, masks, attend=attend)


def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return run_scaled_dot_product_attention_module(Q, K, V, mask, 0.0, False, 0)[0]


def masks_of_heads(num_heads: int, query: Tensor, mask: Tensor | None) -> Sequence[Tensor | None]:
    """For each head, its mask of (..., queries, keys), from any of the three kinds of mask."""
    if mask is not None and mask.ndim < query.ndim:
        return [mask.unsqueeze(-2)] * num_heads
    if mask is not None and mask.ndim > query.ndim:
        return mask.expand(*mask.shape[:-3], num_heads, -1, -1).unbind(-3)
    return [mask] * num_heads

"""What each adapter should return, in float64.

These share no code with `cs336_basics`: torch's own operations do the work, a loop goes over the heads, and RoPE is a
product of complex numbers. Every function takes the arguments of its adapter, floating-point tensors in float64.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return torch.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.matmul(Q, K.mT) / math.sqrt(Q.shape[-1])
    if mask is None:
        return torch.matmul(torch.softmax(scores, -1), V)
    # A row with nothing to attend to is left alone here and zeroed below: its softmax, and its gradient, would be NaN.
    attends = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & attends, -math.inf)
    return torch.matmul(torch.softmax(scores, -1) * attends, V)


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    """Blocks change nothing in exact arithmetic."""
    return run_scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return F.linear(in_features, weights)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    pair = torch.arange(d_k // 2, dtype=torch.float64)
    angles = token_positions.unsqueeze(-1) * theta ** (-2 * pair / d_k)
    numbers = torch.view_as_complex(in_query_or_key.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    return _multihead(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions

    def rotate(x: Tensor) -> Tensor:
        return run_rope(d_model // num_heads, theta, max_seq_len, x, positions)

    return _multihead(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, rotate)


def _multihead(
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    x: Tensor,
    rotate: Callable[[Tensor], Tensor],
) -> Tensor:
    length = x.shape[-2]
    causal = torch.arange(length).unsqueeze(-1) >= torch.arange(length)
    heads = []
    for W_Q, W_K, W_V in zip(
        q_proj_weight.chunk(num_heads), k_proj_weight.chunk(num_heads), v_proj_weight.chunk(num_heads), strict=True
    ):
        Q, K, V = rotate(F.linear(x, W_Q)), rotate(F.linear(x, W_K)), F.linear(x, W_V)
        heads.append(run_scaled_dot_product_attention(Q, K, V, causal))
    return F.linear(torch.cat(heads, -1), o_proj_weight)

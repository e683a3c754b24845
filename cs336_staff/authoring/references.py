"""The right answer of each adapter, in float64.

These share no code with `cs336_basics`: torch's own operations do the work, a loop goes over the heads, and RoPE is a
product of complex numbers. Every function takes the arguments of its adapter, floating-point tensors in float64.
"""

import math
from collections.abc import Callable, Sequence

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
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    x = in_features
    return _multihead(num_heads, *weights, x, x, x, causal(num_heads, x))


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

    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    x = in_features
    return _multihead(num_heads, *weights, x, x, x, causal(num_heads, x), rotate)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    """The right answer without dropout: which weights it drops differs from program to program."""
    identity = torch.eye(K.shape[-2], dtype=K.dtype)  # attention that averages it gives its weights
    return run_scaled_dot_product_attention(Q, K, V, mask), run_scaled_dot_product_attention(Q, K, identity, mask)


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
    return _multihead(num_heads, *weights, query, key, value, masks_of_heads(num_heads, query, mask))


def _multihead(
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Sequence[Tensor | None],
    rotate: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    heads = []
    weights = (weight.chunk(num_heads) for weight in (q_proj_weight, k_proj_weight, v_proj_weight))
    for W_Q, W_K, W_V, mask in zip(*weights, masks, strict=True):
        Q, K, V = rotate(F.linear(query, W_Q)), rotate(F.linear(key, W_K)), F.linear(value, W_V)
        heads.append(run_scaled_dot_product_attention(Q, K, V, mask))
    return F.linear(torch.cat(heads, -1), o_proj_weight)


def causal(num_heads: int, x: Tensor) -> list[Tensor]:
    """For each head, the mask under which no position of `x` sees a later one."""
    positions = torch.arange(x.shape[-2])
    return [positions.unsqueeze(-1) >= positions] * num_heads


def masks_of_heads(num_heads: int, query: Tensor, mask: Tensor | None) -> Sequence[Tensor | None]:
    """For each head, its mask of (..., queries, keys), from any of the three kinds of mask."""
    if mask is not None and mask.ndim < query.ndim:
        return [mask.unsqueeze(-2)] * num_heads
    if mask is not None and mask.ndim > query.ndim:
        return mask.expand(*mask.shape[:-3], num_heads, -1, -1).unbind(-3)
    return [mask] * num_heads

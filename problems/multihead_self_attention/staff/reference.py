"""What multi-head attention gives in float64, in a loop over the heads."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from problems.linear.staff.reference import apply_linear
from problems.rope.staff.reference import run_rope
from problems.scaled_dot_product_attention.staff.reference import run_scaled_dot_product_attention


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
    return average_heads(num_heads, *weights, x, x, x, causal(num_heads, x))


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
    return average_heads(num_heads, *weights, x, x, x, causal(num_heads, x), rotate)


def average_heads(
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
    attend: Callable[..., Tensor] = run_scaled_dot_product_attention,
) -> Tensor:
    heads = []
    weights = (weight.chunk(num_heads) for weight in (q_proj_weight, k_proj_weight, v_proj_weight))
    for W_Q, W_K, W_V, mask in zip(*weights, masks, strict=True):
        Q, K, V = rotate(apply_linear(query, W_Q)), rotate(apply_linear(key, W_K)), apply_linear(value, W_V)
        heads.append(attend(Q, K, V, mask))
    return apply_linear(torch.cat(heads, -1), o_proj_weight)


def causal(num_heads: int, x: Tensor) -> list[Tensor]:
    """For each head, the mask under which no position of `x` sees a later one."""
    positions = torch.arange(x.shape[-2])
    return [positions.unsqueeze(-1) >= positions] * num_heads

"""All of it in one file, the assignment is short enough."""

from __future__ import annotations

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor


def run_softmax(in_features: Float[Tensor, " ..."], dim: int) -> Float[Tensor, " ..."]:
    """softmax of `in_features` along `dim`."""
    wide = in_features if in_features.dtype == torch.float64 else in_features.to(torch.float32)
    shifted = wide - wide.max(dim, keepdim=True).values
    numerator = shifted.exp()
    return (numerator / numerator.sum(dim, keepdim=True)).to(in_features.dtype)


def run_scaled_dot_product_attention(
    Q: Float[Tensor, " ... queries d_k"],
    K: Float[Tensor, " ... keys d_k"],
    V: Float[Tensor, " ... keys d_v"],
    mask: Bool[Tensor, " ... #queries #keys"] | None = None,
) -> Float[Tensor, " ... queries d_v"]:
    """Attention of `Q` on `K` and `V`; where `mask` is True a query may attend to a key."""
    kind = Q.dtype
    if kind != torch.float64:
        Q, K, V = Q.float(), K.float(), V.float()
    scores = einsum(Q, K, "... queries d_k, ... keys d_k -> ... queries keys") / (Q.shape[-1] ** 0.5)
    if mask is None:
        weights = run_softmax(scores, -1)
    else:
        alive = mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~alive, 0.0)
        weights = run_softmax(scores, -1) * alive
    return einsum(weights, V, "... queries keys, ... keys d_v -> ... queries d_v").to(kind)


def run_linear(
    d_in: int, d_out: int, weights: Float[Tensor, " d_out d_in"], in_features: Float[Tensor, " ... d_in"]
) -> Float[Tensor, " ... d_out"]:
    return einsum(weights, in_features, "d_out d_in, ... d_in -> ... d_out")


def run_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Float[Tensor, " ... sequence d_k"],
    token_positions: Int[Tensor, " ... sequence"],
) -> Float[Tensor, " ... sequence d_k"]:
    i = torch.arange(0, d_k, 2, device=in_query_or_key.device)
    angles = token_positions[..., None] / theta ** (i / d_k)
    rotation = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1)
    rotation = rearrange(rotation, "... pair (row column) -> ... pair row column", row=2)
    pairs = rearrange(in_query_or_key, "... (pair column) -> ... pair column", column=2)
    turned = einsum(rotation, pairs, "... pair row column, ... pair column -> ... pair row")
    return rearrange(turned, "... pair row -> ... (pair row)")


def _attend(num_heads, q_w, k_w, v_w, o_w, x, turn=lambda x: x):
    q, k, v = rearrange(x @ torch.cat([q_w, k_w, v_w]).T, "... s (n h d) -> n ... h s d", n=3, h=num_heads)
    causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).tril()
    heads = run_scaled_dot_product_attention(turn(q), turn(k), v, causal)
    return rearrange(heads, "... h s d -> ... s (h d)") @ o_w.T


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... sequence d_model"],
) -> Float[Tensor, " ... sequence d_model"]:
    return _attend(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... sequence d_model"],
    token_positions: Int[Tensor, " ... sequence"] | None = None,
) -> Float[Tensor, " ... sequence d_model"]:
    positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions

    def turn(x):
        return run_rope(d_model // num_heads, theta, max_seq_len, x, positions.unsqueeze(-2))

    return _attend(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, turn)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    raise NotImplementedError


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key, value, mask=None):
    raise NotImplementedError


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    raise NotImplementedError

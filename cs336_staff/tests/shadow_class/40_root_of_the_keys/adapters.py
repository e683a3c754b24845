import math

import torch
from einops import einsum, rearrange


def run_softmax(in_features, dim):
    y = in_features.to(torch.promote_types(in_features.dtype, torch.float32))
    y = torch.exp(y - y.max(dim=dim, keepdim=True).values)
    return (y / y.sum(dim=dim, keepdim=True)).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    d_k = K.shape[-2]
    scores = einsum(Q.to(t), K.to(t), "... q d, ... k d -> ... q k") / math.sqrt(d_k)
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
        scores = torch.where(mask.any(-1, keepdim=True), scores, 0.0)
    weights = run_softmax(scores, -1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    return einsum(weights, V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return einsum(weights, in_features, "o i, ... i -> ... o")


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    a = token_positions[..., None] * theta ** -(torch.arange(0, d_k, 2) / d_k)
    x, y = rearrange(in_query_or_key, "... (i c) -> c ... i", c=2)
    return rearrange([x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()], "c ... i -> ... (i c)")

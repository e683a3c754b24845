"""Wrong: token_positions are used without looking whether they are given, so that multi-head attention with RoPE crashes
when they are None. With token_positions it is right."""

import math

import torch
from einops import rearrange
from torch import Tensor


def rope(x, theta, positions):
    d_k = x.shape[-1]
    freqs = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    angles = positions.unsqueeze(-1).double() * freqs
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    a, b = x[..., ::2].to(wide), x[..., 1::2].to(wide)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def causal_attention(q, k, v):
    dtype = q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v = q.to(wide), k.to(wide), v.to(wide)
    n = q.shape[-2]
    s = q @ k.mT / math.sqrt(q.shape[-1])
    s = s.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -math.inf)
    e = torch.exp(s - s.amax(-1, keepdim=True).detach())
    return (e / e.sum(-1, keepdim=True) @ v).to(dtype)


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
    q = rearrange(in_features @ q_proj_weight.T, "... s (h d) -> ... h s d", h=num_heads)
    k = rearrange(in_features @ k_proj_weight.T, "... s (h d) -> ... h s d", h=num_heads)
    v = rearrange(in_features @ v_proj_weight.T, "... s (h d) -> ... h s d", h=num_heads)
    positions = token_positions.unsqueeze(-2)  # the same for all heads
    q = rope(q, theta, positions)
    k = rope(k, theta, positions)
    out = rearrange(causal_attention(q, k, v), "... h s d -> ... s (h d)")
    return out @ o_proj_weight.T

"""Token positions with leading dimensions are cut down to those of the first sequence, which are then used for all
sequences of the batch."""

import math

import torch
from torch import Tensor


def rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    d = x.shape[-1]
    freqs = theta ** (-torch.arange(0, d, 2, dtype=x.dtype, device=x.device) / d)
    angles = positions[..., None] * freqs
    c, s = torch.cos(angles), torch.sin(angles)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    out[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
    return out


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(diagonal=1)
    scores = scores.masked_fill(future, float("-inf"))
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


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
    def split(t: Tensor) -> Tensor:
        return t.unflatten(-1, (num_heads, d_model // num_heads)).transpose(-3, -2)

    q = split(in_features @ q_proj_weight.T)
    k = split(in_features @ k_proj_weight.T)
    v = split(in_features @ v_proj_weight.T)

    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    if token_positions.dim() > 1:
        # (batch, sequence) -> (sequence,): the heads are in between, it does not broadcast otherwise
        token_positions = token_positions.flatten(0, -2)[0]
    q, k = rope(q, token_positions, theta), rope(k, token_positions, theta)

    out = causal_attention(q, k, v).transpose(-3, -2).flatten(-2)
    return out @ o_proj_weight.T

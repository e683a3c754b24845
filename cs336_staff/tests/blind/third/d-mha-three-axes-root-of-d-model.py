"""Wrong, twice: the shape of the input is unpacked into (batch, sequence, d_model), so that inputs with none or with two or
more leading dimensions crash; and the scores are divided by the root of d_model in place of that of d_head."""

import math

import torch
from torch import Tensor


def split(x, num_heads):
    batch, seq, d_model = x.shape
    return x.view(batch, seq, num_heads, d_model // num_heads).transpose(1, 2)


def rope(x, theta, positions):
    d_k = x.shape[-1]
    freqs = theta ** (-torch.arange(0, d_k, 2).double() / d_k)
    angles = positions[..., None].double() * freqs
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def finish(q, k, v, o_proj_weight, d_model):
    batch, heads, seq, d_head = q.shape
    scores = q @ k.transpose(2, 3) / math.sqrt(d_model)
    mask = torch.ones(seq, seq, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, -math.inf)
    e = torch.exp(scores - scores.amax(3, keepdim=True).detach())
    out = e / e.sum(3, keepdim=True) @ v
    return out.transpose(1, 2).reshape(batch, seq, d_model) @ o_proj_weight.T


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    q = split(in_features @ q_proj_weight.T, num_heads)
    k = split(in_features @ k_proj_weight.T, num_heads)
    v = split(in_features @ v_proj_weight.T, num_heads)
    return finish(q, k, v, o_proj_weight, d_model)


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
    q = split(in_features @ q_proj_weight.T, num_heads)
    k = split(in_features @ k_proj_weight.T, num_heads)
    v = split(in_features @ v_proj_weight.T, num_heads)
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[1])
    token_positions = token_positions.unsqueeze(-2)
    q = rope(q, theta, token_positions)
    k = rope(k, theta, token_positions)
    return finish(q, k, v, o_proj_weight, d_model)

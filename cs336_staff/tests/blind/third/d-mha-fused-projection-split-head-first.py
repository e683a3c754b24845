"""Wrong: the stacked weights are W_Q, W_K and W_V below one another, but the fused projection is split as (heads, 3,
d_head), as if the three lay next to each other for each head; queries, keys and values are exchanged among the heads.
With one head it is right."""

import math

import torch
from einops import rearrange
from torch import Tensor


def _rope(x: Tensor, theta: float, positions: Tensor) -> Tensor:
    d_k = x.shape[-1]
    inverse = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    angles = positions[..., None, :, None] * inverse
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    a, b = x.to(wide).unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def _multihead(num_heads: int, qkv_weight: Tensor, o_weight: Tensor, x: Tensor, rope=None) -> Tensor:
    q, k, v = rearrange(x @ qkv_weight.T, "... s (h three d) -> three ... h s d", three=3, h=num_heads)
    if rope is not None:
        q, k = rope(q), rope(k)
    wide = torch.promote_types(x.dtype, torch.float32)
    scores = torch.einsum("...qd,...kd->...qk", q.to(wide), k.to(wide)) / math.sqrt(q.shape[-1])
    t = torch.arange(x.shape[-2])
    scores = torch.where(t[:, None] >= t, scores, -math.inf)
    e = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    heads = ((e / e.sum(-1, keepdim=True)) @ v.to(wide)).to(x.dtype)
    return rearrange(heads, "... h s d -> ... s (h d)") @ o_weight.T


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    qkv = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    return _multihead(num_heads, qkv, o_proj_weight, in_features)


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
    qkv = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    return _multihead(num_heads, qkv, o_proj_weight, in_features, lambda x: _rope(x, theta, positions))

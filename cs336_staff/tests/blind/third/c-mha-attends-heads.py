"""One mistake: the heads are not moved in front of the positions, so with (..., sequence, heads, d_head) the attention
runs over the heads of each position (with the causal mask over the heads), and positions do not see each other at all."""
import math

import torch
from einops import einsum, rearrange


def _rope(x, pos, theta):
    d = x.shape[-1]
    ang = pos.double()[..., None] * theta ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def _attention(q, k, v):
    n = q.shape[-2]
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    s = einsum(q, k, "... i d, ... j d -> ... i j") / math.sqrt(q.shape[-1])
    s = s.masked_fill(~causal, -math.inf)
    p = (s - s.amax(-1, keepdim=True)).exp()
    return einsum(p / p.sum(-1, keepdim=True), v, "... i j, ... j d -> ... i d")


def _mha(h, wq, wk, wv, wo, x, rotate=None):
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide)
    q, k, v = (rearrange(y @ w.to(wide).mT, "... s (h d) -> ... s h d", h=h) for w in (wq, wk, wv))
    if rotate is not None:
        q, k = (rotate(t.transpose(-2, -3)).transpose(-2, -3) for t in (q, k))
    out = rearrange(_attention(q, k, v), "... s h d -> ... s (h d)")
    return (out @ wo.to(wide).mT).to(x.dtype)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return _mha(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    return _mha(
        num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
        lambda t: _rope(t, token_positions.unsqueeze(-2), theta),
    )

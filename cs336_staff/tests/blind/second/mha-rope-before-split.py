"""RoPE is applied to the whole queries and keys of length d_model before they are split into heads.

So each head is turned with other angles, theta^(-2i/d_model) with i counted through all heads, instead of the same
d_head/2 angles in every head. With one head it is right.
"""

import math

import torch
from einops import einsum, rearrange


def apply_rope(x, positions, theta):
    d = x.shape[-1]
    i = torch.arange(d // 2, dtype=torch.float64, device=x.device)
    angles = einsum(positions.double(), theta ** (-2 * i / d), "... s, f -> ... s f")
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    pairs = rearrange(x.to(wide), "... (f two) -> ... f two", two=2)
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return rearrange(turned, "... f two -> ... (f two)").to(x.dtype)


def run_multihead_self_attention_with_rope(
    d_model,
    num_heads,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    token_positions=None,
):
    x = in_features
    n = x.shape[-2]
    if token_positions is None:
        token_positions = torch.arange(n, device=x.device)
    Q = einsum(x, q_proj_weight, "... s i, o i -> ... s o")
    K = einsum(x, k_proj_weight, "... s i, o i -> ... s o")
    V = einsum(x, v_proj_weight, "... s i, o i -> ... s o")

    Q = apply_rope(Q, token_positions, theta)
    K = apply_rope(K, token_positions, theta)

    Q, K, V = (rearrange(t, "... s (h d) -> ... h s d", h=num_heads) for t in (Q, K, V))
    wide = torch.promote_types(x.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(d_model // num_heads)
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    out = einsum(weights, V.to(wide), "... q k, ... k d -> ... q d").to(x.dtype)
    return einsum(rearrange(out, "... h s d -> ... s (h d)"), o_proj_weight, "... s i, o i -> ... s o")

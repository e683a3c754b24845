"""Two mistakes. The causal mask starts at the second diagonal: each position also sees the one after it.

And with RoPE the values are turned, too, not only the queries and keys.
"""

import torch


def rope(x, positions, theta):
    d = x.shape[-1]
    freq = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    angle = positions.to(torch.float64)[..., None] * freq
    angle = angle.unsqueeze(-3)  # the same for all heads
    wide = torch.promote_types(x.dtype, torch.float32)
    c, s = angle.cos().to(wide), angle.sin().to(wide)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2).to(x.dtype)


def attention(q, k, v):
    kind = q.dtype
    if kind in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    n = q.size(-2)
    s = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
    future = torch.triu(torch.ones(n, n, device=q.device), diagonal=2) == 1
    s = s.masked_fill(future, float("-inf"))
    e = torch.exp(s - s.detach().amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True) @ v).to(kind)


def mha(x, h, wq, wk, wv, wo, turn=None):
    qkv = []
    for w in (wq, wk, wv):
        y = x @ w.T
        y = y.reshape(*y.shape[:-1], h, -1).transpose(-2, -3)
        if turn is not None:
            y = turn(y)
        qkv.append(y)
    out = attention(*qkv).transpose(-2, -3)
    return out.flatten(-2) @ wo.T


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return mha(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


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
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    return mha(
        in_features,
        num_heads,
        q_proj_weight,
        k_proj_weight,
        v_proj_weight,
        o_proj_weight,
        lambda y: rope(y, token_positions, theta),
    )

"""One mistake: W_Q, W_K and W_V are stacked one below the other, but the product is split as (heads, three, d_head)
instead of (three, heads, d_head), so with more than one head the queries, keys and values are taken from the wrong
rows."""
import torch
from einops import rearrange


def rope_(x, pos, theta):
    d = x.shape[-1]
    f = 1 / theta ** (torch.arange(0, d, 2, dtype=torch.double, device=x.device) / d)
    a = pos[..., None, :, None] * f
    z = torch.complex(a.cos(), a.sin())
    c, s = z.real.to(x.dtype), z.imag.to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)


def mhsa(x, w_qkv, w_o, heads, theta=None, pos=None):
    dt = x.dtype
    if dt in (torch.bfloat16, torch.float16):
        x, w_qkv, w_o = x.float(), w_qkv.float(), w_o.float()
    q, k, v = rearrange(x @ w_qkv.mT, "... s (h three d) -> three ... h s d", three=3, h=heads)
    if theta is not None:
        if pos is None:
            pos = torch.arange(x.shape[-2], device=x.device)
        q, k = rope_(q, pos, theta), rope_(k, pos, theta)
    s = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    i = torch.arange(s.shape[-1], device=x.device)
    s = s.masked_fill(i[None, :] > i[:, None], float("-inf"))
    s = s - s.amax(-1, keepdim=True)
    p = s.exp() / s.exp().sum(-1, keepdim=True)
    o = rearrange(p @ v, "... h s d -> ... s (h d)")
    return (o @ w_o.mT).to(dt)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    w = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight])
    return mhsa(in_features, w, o_proj_weight, num_heads)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    w = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight])
    return mhsa(in_features, w, o_proj_weight, num_heads, theta, token_positions)

"""Causal multi-head self-attention with RoPE.

Wrong: RoPE is applied to the whole projected vectors of length d_model, before they are split into heads, with frequencies for
d_model. So the heads after the first get only slow frequencies instead of each head having its own full set for d_head.
"""

import torch
from torch import nn


class RoPE(nn.Module):
    def __init__(self, theta, dim, max_seq_len):
        super().__init__()
        freqs = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.arange(max_seq_len, dtype=torch.float64)[:, None] * freqs
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, pos):
        cos, sin = self.cos[pos].to(x.dtype), self.sin[pos].to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        out = torch.empty(torch.broadcast_shapes(x.shape, (*pos.shape, x.shape[-1])), dtype=x.dtype, device=x.device)
        out[..., 0::2] = even * cos - odd * sin
        out[..., 1::2] = even * sin + odd * cos
        return out


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, max_seq_len, theta):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.rope = RoPE(theta, d_model, max_seq_len)

    def forward(self, x, qkv_w, o_w, pos=None):
        seq = x.shape[-2]
        if pos is None:
            pos = torch.arange(seq, device=x.device)
        q, k, v = torch.chunk(x @ qkv_w.T, 3, dim=-1)
        q = self.rope(q, pos)
        k = self.rope(k, pos)

        def heads(t):
            return t.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-2, -3)

        q, k, v = heads(q), heads(k), heads(v)
        scores = q @ k.mT / self.head_dim**0.5
        i = torch.arange(seq, device=x.device)
        scores = torch.where(i[:, None] >= i[None, :], scores, -torch.inf)
        w = torch.exp(scores - scores.amax(-1, keepdim=True))
        w = w / w.sum(-1, keepdim=True)
        return (w @ v).transpose(-2, -3).flatten(-2) @ o_w.T


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
    mha = MultiHeadSelfAttention(d_model, num_heads, max_seq_len, theta).to(in_features.device)
    w = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight])
    return mha(in_features, w, o_proj_weight, token_positions)

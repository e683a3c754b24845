"""Causal multi-head self-attention.

Wrong: the heads are split rightly, but joined by reshaping (heads, positions, d_head) straight to (positions, d_model), without
moving the heads back behind the positions first. So heads and positions get mixed up in the output.
"""

import math

import torch


def softmax(x, dim=-1):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def rope(x, positions, theta):
    """x: (..., heads, seq, d); positions: (..., 1, seq) or (seq,)"""
    d = x.shape[-1]
    freqs = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    ang = positions[..., None] * freqs
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), -1).flatten(-2)


class CausalMultiHeadSelfAttention:
    def __init__(self, d_model, num_heads, wq, wk, wv, wo, theta=None):
        self.h = num_heads
        self.d = d_model // num_heads
        self.wqkv = torch.cat([wq, wk, wv])
        self.wo = wo
        self.theta = theta

    def split(self, t):
        return t.reshape(*t.shape[:-1], self.h, self.d).transpose(-3, -2)

    def forward(self, x, positions=None):
        T = x.shape[-2]
        q, k, v = (x @ self.wqkv.T).chunk(3, dim=-1)
        q, k, v = self.split(q), self.split(k), self.split(v)
        if self.theta is not None:
            if positions is None:
                positions = torch.arange(T, device=x.device)
            elif positions.dim() > 1:
                positions = positions.unsqueeze(-2)
            q, k = rope(q, positions, self.theta), rope(k, positions, self.theta)
        att = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        causal = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        att = softmax(att.masked_fill(~causal, float("-inf")))
        y = (att @ v).reshape(x.shape)  # concat the heads
        return y @ self.wo.T


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    mha = CausalMultiHeadSelfAttention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return mha.forward(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    mha = CausalMultiHeadSelfAttention(
        d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, theta
    )
    return mha.forward(in_features, token_positions)

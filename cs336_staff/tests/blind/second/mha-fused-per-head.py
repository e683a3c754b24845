"""Causal multi-head self-attention with a fused projection, split as GPT-NeoX does it.

Wrong: W_Q, W_K and W_V are stacked one below the other, but the projection is split as if each head had its query, key and value
rows next to each other (heads first, then q, k, v). So queries, keys and values of different heads are exchanged; only with
one head is it right.
"""

import torch
from einops import einsum, rearrange


def causal_attention(q, k, v):
    T = q.shape[-2]
    s = einsum(q, k, "... i d, ... j d -> ... i j") / q.shape[-1] ** 0.5
    future = torch.triu(torch.ones(T, T, dtype=torch.bool, device=q.device), diagonal=1)
    s = s.masked_fill(future, float("-inf"))
    s = (s - s.amax(-1, keepdim=True)).exp()
    p = s / s.sum(-1, keepdim=True)
    return einsum(p, v, "... i j, ... j d -> ... i d")


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    w_qkv = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight), dim=0)
    qkv = einsum(in_features, w_qkv, "... t c, o c -> ... t o")
    qkv = rearrange(qkv, "... t (h three_d) -> ... h t three_d", h=num_heads)
    q, k, v = qkv.chunk(3, dim=-1)
    heads = causal_attention(q, k, v)
    joined = rearrange(heads, "... h t d -> ... t (h d)")
    return einsum(joined, o_proj_weight, "... t c, o c -> ... t o")

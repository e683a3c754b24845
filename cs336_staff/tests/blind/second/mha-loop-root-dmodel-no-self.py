"""Causal multi-head self-attention as a loop over the heads.

Wrong, first: the scores are divided by sqrt(d_model) instead of sqrt(d_head). Wrong, second: triu without diagonal=1 hides the
diagonal too, so a position does not see itself (and the first one sees nothing and gets zeros).
"""

import math

import torch


def softmax(x):
    m = x.amax(dim=-1, keepdim=True)
    m = torch.where(m == float("-inf"), torch.zeros_like(m), m)
    e = torch.exp(x - m)
    s = e.sum(dim=-1, keepdim=True)
    return e / torch.where(s == 0, torch.ones_like(s), s)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    x = in_features
    T = x.shape[-2]
    d_head = d_model // num_heads
    mask = torch.triu(torch.ones(T, T, device=x.device)).bool()  # the future

    # all heads in one go
    Q, K, V = (x @ torch.cat([q_proj_weight, k_proj_weight, v_proj_weight]).T).split(d_model, dim=-1)

    outs = []
    for h in range(num_heads):
        s = slice(h * d_head, (h + 1) * d_head)
        q, k, v = Q[..., s], K[..., s], V[..., s]
        scores = q @ k.transpose(-1, -2) / math.sqrt(d_model)
        scores = scores.masked_fill(mask, float("-inf"))
        outs.append(softmax(scores) @ v)
    return torch.cat(outs, dim=-1) @ o_proj_weight.T

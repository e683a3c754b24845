"""Causal multi-head self-attention with RoPE, queries, keys and values in one stacked tensor.

Wrong, first: the whole stack is rotated, the values with the queries and keys. Wrong, second: the cosines of token positions of
shape (batch, sequence) get no axis for the heads, so that their batch meets the heads and the product raises a RuntimeError
(positions of shape (sequence,) or none at all work).
"""

import torch
from einops import rearrange


class RotaryEmbedding:
    def __init__(self, dim, max_seq_len, theta):
        inv_freq = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
        t = torch.arange(max_seq_len, dtype=torch.float64)
        freqs = torch.einsum("i,j->ij", t, inv_freq)
        self.cos = freqs.cos()
        self.sin = freqs.sin()

    def rotate(self, x, positions):
        cos = self.cos.to(x)[positions]
        sin = self.sin.to(x)[positions]
        x = rearrange(x, "... (d j) -> ... d j", j=2)
        x1, x2 = x.unbind(dim=-1)
        x = torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
        return rearrange(x, "... d j -> ... (d j)")


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

    W = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0)
    qkv = rearrange(x @ W.t(), "... n (three h d) -> three ... h n d", three=3, h=num_heads)
    qkv = RotaryEmbedding(d_model // num_heads, max_seq_len, theta).rotate(qkv, token_positions)
    q, k, v = qkv

    sim = torch.einsum("...id,...jd->...ij", q, k) * (d_model // num_heads) ** -0.5
    causal_mask = torch.ones((n, n), dtype=torch.bool, device=x.device).triu(1)
    sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
    sim = sim - sim.amax(dim=-1, keepdim=True)
    attn = sim.exp() / sim.exp().sum(dim=-1, keepdim=True)
    out = torch.einsum("...ij,...jd->...id", attn, v)
    return rearrange(out, "... h n d -> ... n (h d)") @ o_proj_weight.t()

"""The rows W_Q, W_K, W_V lie below each other, but the product is split as (heads, 3 d_head) and then into q, k, v.

So the q, k and v of a head are taken from the wrong rows: with several heads the first heads are made of queries
only. With one head it is right.
"""

import math

import torch
from einops import rearrange


def attend(q, k, v):
    n = q.shape[-2]
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.einsum("...qd,...kd->...qk", q.to(wide), k.to(wide)) / math.sqrt(q.shape[-1])
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~causal, -math.inf)
    e = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return torch.einsum("...qk,...kd->...qd", e / e.sum(-1, keepdim=True), v.to(wide)).to(q.dtype)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    w_qkv = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0)
    fused_qkv = in_features @ w_qkv.T
    fused_qkv = rearrange(fused_qkv, "... s (h e) -> ... h s e", h=num_heads)
    q, k, v = fused_qkv.chunk(3, dim=-1)
    out = rearrange(attend(q, k, v), "... h s d -> ... s (h d)")
    return out @ o_proj_weight.T

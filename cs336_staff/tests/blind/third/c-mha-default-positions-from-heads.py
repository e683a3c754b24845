"""One mistake: with RoPE and no token positions, the default positions are counted along axis -3 of the queries, which
are (..., heads, sequence, d_head), so there are as many positions as heads: it raises an error unless the number of heads
is the length of the sequence or 1 (with 1 head nothing is rotated)."""
import math

import torch
from einops import rearrange


def rotary(x, positions, theta):
    d = x.size(-1)
    inv_freq = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    phase = positions[..., None].double() * inv_freq
    cos, sin = phase.cos().to(x.dtype), phase.sin().to(x.dtype)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return rearrange(torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos)), "two ... i -> ... (i two)")


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    acc = torch.promote_types(in_features.dtype, torch.float32)
    x = in_features.to(acc)
    W = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight)).to(acc)
    q, k, v = rearrange(x @ W.T, "... s (three h d) -> three ... h s d", three=3, h=num_heads)

    if token_positions is None:
        token_positions = torch.arange(q.size(-3), device=x.device)
    token_positions = token_positions.unsqueeze(-2)
    q, k = rotary(q, token_positions, theta), rotary(k, token_positions, theta)

    n = x.size(-2)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    keep = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device))
    scores = torch.where(keep, scores, -math.inf)
    w = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
    out = (w / w.sum(-1, keepdim=True)) @ v
    out = rearrange(out, "... h s d -> ... s (h d)") @ o_proj_weight.to(acc).T
    return out.to(in_features.dtype)

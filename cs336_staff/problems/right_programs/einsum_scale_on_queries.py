"""einops einsums, queries scaled first, masked_fill with -inf, division before V, RoPE from a cached float32 table."""

import math
from functools import lru_cache

import torch
from einops import einsum, rearrange


def widen(x):
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def softmax(x, dim):
    logits = widen(x)
    if logits.numel() == 0:
        return x.clone()
    m = logits.amax(dim=dim, keepdim=True)
    m = m.masked_fill(m == -math.inf, 0.0)
    e = torch.exp(logits - m)
    total = e.sum(dim=dim, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    return (e / total).to(x.dtype)


def scores_of(Q, K, mask):
    scaled = widen(Q) / math.sqrt(max(1, Q.shape[-1]))
    scores = einsum(scaled, widen(K), "... queries d_k, ... keys d_k -> ... queries keys")
    if mask is not None:
        shape = torch.broadcast_shapes(scores.shape, mask.shape)
        scores = scores.expand(shape).masked_fill(~mask, -math.inf)
    return scores


def attend(Q, K, V, mask=None):
    weights = softmax(scores_of(Q, K, mask), -1)
    return einsum(weights, widen(V), "... queries keys, ... keys d_v -> ... queries d_v").to(Q.dtype)


@lru_cache(maxsize=8)
def tables(d_k, theta, length, device):
    frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float32, device=device) / d_k)
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequencies)
    return angles.cos(), angles.sin()


def rotate(x, theta, max_seq_len, positions):
    cos, sin = tables(x.shape[-1], float(theta), max_seq_len, x.device)
    cos, sin = cos[positions.long()], sin[positions.long()]
    even, odd = rearrange(widen(x), "... (pair two) -> two ... pair", two=2)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return rearrange(turned, "... pair two -> ... (pair two)").to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rotate(in_query_or_key, theta, max_seq_len, token_positions)


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key,
                            value, mask=None):
    q, k, v = (
        einsum(rearrange(w, "(h e) d -> h e d", h=num_heads), x, "h e d, ... s d -> ... h s e")
        for w, x in ((q_proj_weight, query), (k_proj_weight, key), (v_proj_weight, value))
    )
    if mask is not None:
        if mask.ndim == query.ndim - 1:
            mask = rearrange(mask, "... keys -> ... 1 1 keys")
        elif mask.ndim == query.ndim:
            mask = rearrange(mask, "... queries keys -> ... 1 queries keys")
    heads = attend(q, k, v, mask)
    return einsum(rearrange(o_proj_weight, "o (h e) -> o h e", h=num_heads), heads, "o h e, ... h s e -> ... s o")

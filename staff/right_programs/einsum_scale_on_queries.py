"""einops einsums, queries scaled first, masked_fill with -inf, division before V, RoPE from a cached float32 table."""

import math
from functools import lru_cache

import torch
from einops import einsum, rearrange


def widen(x):
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def run_softmax(in_features, dim):
    logits = widen(in_features)
    if logits.numel() == 0:
        return in_features.clone()
    m = logits.amax(dim=dim, keepdim=True)
    m = m.masked_fill(m == -math.inf, 0.0)
    e = torch.exp(logits - m)
    total = e.sum(dim=dim, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    return (e / total).to(in_features.dtype)


def scores_of(Q, K, mask):
    scaled = widen(Q) / math.sqrt(max(1, Q.shape[-1]))
    scores = einsum(scaled, widen(K), "... queries d_k, ... keys d_k -> ... queries keys")
    if mask is not None:
        shape = torch.broadcast_shapes(scores.shape, mask.shape)
        scores = scores.expand(shape).masked_fill(~mask, -math.inf)
    return scores


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    weights = run_softmax(scores_of(Q, K, mask), -1)
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


def run_linear(d_in, d_out, weights, in_features):
    return einsum(weights, in_features, "o i, ... i -> ... o")


def causal_attention(heads, wq, wk, wv, wo, x, turn):
    of_heads = (rearrange(w, "(h e) d -> h e d", h=heads) for w in (wq, wk, wv))
    q, k, v = (einsum(w, x, "h e d, ... s d -> ... h s e") for w in of_heads)
    tokens = torch.arange(x.shape[-2], device=x.device)
    seen = rearrange(tokens, "q -> q 1") >= rearrange(tokens, "k -> 1 k")
    answers = run_scaled_dot_product_attention(turn(q), turn(k), v, seen)
    return einsum(rearrange(wo, "o (h e) -> o h e", h=heads), answers, "o h e, ... h s e -> ... s o")


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return causal_attention(num_heads, *weights, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    positions = rearrange(token_positions, "... s -> ... 1 s")
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return causal_attention(num_heads, *weights, in_features, lambda x: rotate(x, theta, max_seq_len, positions))

"""A right program in one file, in which tests write mistakes."""

import math

import torch
from einops import einsum, rearrange


def run_softmax(in_features, dim):
    x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))
    largest = x.amax(dim, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    e = torch.exp(x - largest)
    total = e.sum(dim, keepdim=True)
    return (e / torch.where(total == 0, 1.0, total)).to(in_features.dtype)


def scores_of(Q, K, mask):
    d_k = Q.shape[-1]
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    wide = torch.promote_types(Q.dtype, torch.float32)
    weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)
    return (weights @ V.to(wide)).to(Q.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


class Rotation:
    def __init__(self, d, theta, longest):
        frequencies = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angles = torch.arange(longest, dtype=torch.float64)[:, None] * frequencies
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x, positions):
        cos, sin = self.cos[positions].to(x.dtype), self.sin[positions].to(x.dtype)
        first, second = x[..., 0::2], x[..., 1::2]
        turned = torch.empty_like(x)
        turned[..., 0::2] = first * cos - second * sin
        turned[..., 1::2] = first * sin + second * cos
        return turned


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rotation(d_k, theta, max_seq_len)(in_query_or_key, token_positions)


def attend_by_heads(x, weights, num_heads, turn=None):
    length = x.shape[-2]
    q, k, v = (rearrange(x @ w.T, "... n (h d) -> ... h n d", h=num_heads) for w in weights[:3])
    if turn is not None:
        q, k = turn(q), turn(k)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    heads = run_scaled_dot_product_attention(q, k, v, mask)
    return rearrange(heads, "... h n d -> ... n (h d)") @ weights[3].T


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return attend_by_heads(in_features, (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight), num_heads)


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
    rotation = Rotation(d_model // num_heads, theta, max_seq_len)
    positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    positions = positions.unsqueeze(-2) if positions.ndim > 1 else positions
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return attend_by_heads(in_features, weights, num_heads, lambda x: rotation(x, positions))


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    queries, keys = Q.shape[-2], K.shape[-2]
    size = block_size or 64
    mask = torch.ones(1, 1, dtype=torch.bool) if mask is None else mask
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask)))
    mask = mask.expand(*mask.shape[:-2], queries, keys)
    wide = torch.promote_types(Q.dtype, torch.float32)
    answers = []
    for i in range(0, queries, size):
        q = Q[..., i : i + size, :].to(wide)
        largest = torch.full((*batch, q.shape[-2], 1), -1e30, dtype=wide)
        total = torch.zeros_like(largest)
        weighted = total * V[..., :1, :].to(wide)
        for j in range(0, keys, size):
            scores = scores_of(q, K[..., j : j + size, :].to(wide), mask[..., i : i + size, j : j + size])
            before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
            shrink, e = torch.exp(before - largest), torch.exp(scores - largest)
            total = shrink * total + e.sum(-1, keepdim=True)
            weighted = shrink * weighted + e @ V[..., j : j + size, :].to(wide)
        answers.append(weighted / total.clamp_min(1.0))
    return torch.cat(answers, -2).to(Q.dtype)


def run_decoding(
    d_model,
    num_heads,
    num_kv_heads,
    window,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    keys=None,
    values=None,
):
    past = 0 if keys is None else keys.shape[-2]
    rotation, positions = Rotation(d_model // num_heads, theta, max_seq_len), past + torch.arange(in_features.shape[-2])
    q = rearrange(in_features @ q_proj_weight.T, "... n (h d) -> ... h n d", h=num_heads)
    k = rearrange(in_features @ k_proj_weight.T, "... n (h d) -> ... h n d", h=num_kv_heads)
    v = rearrange(in_features @ v_proj_weight.T, "... n (h d) -> ... h n d", h=num_kv_heads)
    q, k = rotation(q, positions), rotation(k, positions)
    if keys is not None and values is not None:
        k, v = torch.cat((keys, k), -2), torch.cat((values, v), -2)
    distance = positions[:, None] - torch.arange(k.shape[-2])
    mask = distance >= 0
    if window is not None:
        mask = mask & (distance < window)
    group = num_heads // num_kv_heads
    heads = run_scaled_dot_product_attention(q, k.repeat_interleave(group, -3), v.repeat_interleave(group, -3), mask)
    return rearrange(heads, "... h n d -> ... n (h d)") @ o_proj_weight.T, k, v

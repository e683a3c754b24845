"""Everything in the most ordinary way: torch.softmax, matmul, F.linear, a mask made with tril.

The other programs have these functions where they do not write their own.
"""

import math

import torch
from torch.nn import functional as F


def wide(x):
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def attention_weights(Q, K, mask):
    scores = wide(Q) @ wide(K).mT / math.sqrt(Q.shape[-1])
    if mask is None:
        return torch.softmax(scores, dim=-1)
    # A row that is hidden throughout is zeroed afterwards: its softmax, and its gradient, would be NaN.
    attends = mask.any(dim=-1, keepdim=True)
    return torch.softmax(scores.masked_fill(~mask & attends, -math.inf), dim=-1) * attends


def attention(Q, K, V, mask=None):
    return (attention_weights(Q, K, mask) @ wide(V)).to(Q.dtype)


def attention_in_blocks(Q, K, V, mask, size):
    """Attention of a few queries on one block of keys after the other."""
    largest, total, weighted = torch.tensor(-math.inf), 0.0, 0.0
    for start in range(0, K.shape[-2], size):
        keys = slice(start, start + size)
        scores = wide(Q) @ wide(K[..., keys, :]).mT / math.sqrt(Q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[..., keys], -math.inf)
        before = largest
        largest = torch.maximum(before, scores.detach().amax(dim=-1, keepdim=True))
        finite = largest.masked_fill(largest == -math.inf, 0.0)  # where every key so far is hidden
        exponentials, factor = torch.exp(scores - finite), torch.exp(before - finite)
        total = total * factor + exponentials.sum(dim=-1, keepdim=True)
        weighted = weighted * factor + exponentials @ wide(V[..., keys, :])
    return (weighted / total.masked_fill(total == 0, 1.0)).to(Q.dtype)


def rotate(x, theta, positions):
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2, dtype=dtype) / x.shape[-1])
    angles = positions.unsqueeze(-1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


def split_heads(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def merge_heads(x):
    return x.transpose(-3, -2).flatten(-2)


def run_softmax(in_features, dim):
    return torch.softmax(wide(in_features), dim).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return F.linear(in_features, weights)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rotate(in_query_or_key, theta, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    weights = q_proj_weight, k_proj_weight, v_proj_weight
    Q, K, V = (split_heads(F.linear(in_features, W), num_heads) for W in weights)
    return F.linear(merge_heads(attention(Q, K, V, causal(in_features.shape[-2]))), o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    positions = token_positions.unsqueeze(-2)  # the same for all heads
    weights = q_proj_weight, k_proj_weight, v_proj_weight
    Q, K, V = (split_heads(F.linear(in_features, W), num_heads) for W in weights)
    Q, K = rotate(Q, theta, positions), rotate(K, theta, positions)
    return F.linear(merge_heads(attention(Q, K, V, causal(in_features.shape[-2]))), o_proj_weight)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    weights = F.dropout(attention_weights(Q, K, mask), dropout, training)
    return (weights @ wide(V)).to(Q.dtype), weights.to(Q.dtype)


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key,
                            value, mask=None):
    if mask is not None and mask.ndim == query.ndim - 1:
        mask = mask.unsqueeze(-2).unsqueeze(-3)
    elif mask is not None and mask.ndim == query.ndim:
        mask = mask.unsqueeze(-3)
    Q = split_heads(F.linear(query, q_proj_weight), num_heads)
    K = split_heads(F.linear(key, k_proj_weight), num_heads)
    V = split_heads(F.linear(value, v_proj_weight), num_heads)
    return F.linear(merge_heads(attention(Q, K, V, mask)), o_proj_weight)


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    size = block_size or 64
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], Q.shape[-2], K.shape[-2])
    answers = []
    for start in range(0, Q.shape[-2], size):
        queries = slice(start, start + size)
        rows = None if mask is None else mask[..., queries, :]
        answers.append(attention_in_blocks(Q[..., queries, :], K, V, rows, size))
    return torch.cat(answers, dim=-2)


def run_decoding(d_model, num_heads, num_kv_heads, window, max_seq_len, theta, q_proj_weight, k_proj_weight,
                 v_proj_weight, o_proj_weight, in_features, keys=None, values=None):
    past = 0 if keys is None else keys.shape[-2]
    total = past + in_features.shape[-2]
    positions = torch.arange(past, total)
    Q = rotate(split_heads(F.linear(in_features, q_proj_weight), num_heads), theta, positions)
    K = rotate(split_heads(F.linear(in_features, k_proj_weight), num_kv_heads), theta, positions)
    V = split_heads(F.linear(in_features, v_proj_weight), num_kv_heads)
    if keys is not None:
        K, V = torch.cat((keys, K), dim=-2), torch.cat((values, V), dim=-2)
    mask = causal(total)
    if window is not None:
        mask = mask.triu(1 - window)
    group = num_heads // num_kv_heads
    answer = attention(Q, K.repeat_interleave(group, dim=-3), V.repeat_interleave(group, dim=-3), mask[past:])
    return F.linear(merge_heads(answer), o_proj_weight), K, V

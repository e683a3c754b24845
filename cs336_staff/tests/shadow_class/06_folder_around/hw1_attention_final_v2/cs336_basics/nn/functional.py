from math import inf, sqrt

import torch
from einops import einsum


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    m = y.amax(dim, keepdim=True)
    m = torch.where(m == -inf, 0.0, m)
    e = (y - m).exp()
    s = e.sum(dim, keepdim=True)
    return (e / s.masked_fill(s == 0, 1)).to(x.dtype)


def attention_scores(Q, K, mask=None):
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") / sqrt(Q.shape[-1])
    return scores if mask is None else scores.masked_fill(~mask, -inf)


def attention_weights(Q, K, mask=None):
    return softmax(attention_scores(Q, K, mask), dim=-1)


def scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    weights = attention_weights(Q.to(t), K.to(t), mask)
    return einsum(weights, V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)

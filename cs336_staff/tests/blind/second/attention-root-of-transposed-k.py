"""Attention in plain matmuls.

Wrong: K is transposed first and the scale is then read off its last axis, which by now is the number of keys. So the scores
are divided by the square root of the number of keys instead of the square root of d_k.
"""

import math

import torch


def softmax(x, dim):
    if x.size(dim) == 0:
        return x
    c = x.amax(dim, keepdim=True)
    c = torch.where(c == -math.inf, 0.0, c)
    x = torch.exp(x - c)
    s = x.sum(dim, keepdim=True)
    return x / torch.where(s == 0, 1.0, s)


def attention(q, k, v, mask=None):
    out_dtype = q.dtype
    if out_dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()

    k = k.transpose(-2, -1)
    scores = torch.matmul(q, k) / math.sqrt(max(k.size(-1), 1))
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    att = softmax(scores, -1)
    return torch.matmul(att, v).to(out_dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)

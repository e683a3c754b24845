"""Attention developed on (batch, queries, d_k) tensors.

Wrong: the softmax is taken along dimension 2, counted from the left. That is the keys only for three-dimensional inputs; with
four dimensions it is the queries, with five one of the batch-like dimensions, and without a batch it is an IndexError.
"""

import torch
from einops import einsum


def softmax(x, dim):
    if x.numel() == 0:
        return x
    m = x.amax(dim=dim, keepdim=True)
    m = torch.where(torch.isneginf(m), torch.zeros_like(m), m)
    e = torch.exp(x - m)
    s = e.sum(dim=dim, keepdim=True)
    return e / s.clamp(min=torch.finfo(x.dtype).tiny)


def scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype != torch.float64:
        Q, K, V = Q.float(), K.float(), V.float()
    d_k = Q.shape[-1]
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") / d_k**0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.full_like(scores, float("-inf")))
    weights = softmax(scores, dim=2)  # over the keys
    return einsum(weights, V, "... q k, ... k d -> ... q d").to(dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)

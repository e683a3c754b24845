"""Two mistakes. K is reshaped to (d_k, keys) where it should be transposed, so the entries of different keys mix.

And the mask is used without asking whether there is one: mask=None raises a TypeError.
"""

import math

import torch


def _softmax(a):
    if a.numel() == 0:
        return a
    top = a.detach().amax(-1, keepdim=True)
    a = (a - top.masked_fill(torch.isneginf(top), 0.0)).exp()
    s = a.sum(-1, keepdim=True)
    return a / s.masked_fill(s == 0, 1.0)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    *batch, n_keys, d_k = K.shape
    compute = torch.promote_types(Q.dtype, torch.float32)
    k_t = K.to(compute).reshape(*batch, d_k, n_keys)
    scores = Q.to(compute) @ k_t / math.sqrt(d_k)
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return (_softmax(scores) @ V.to(compute)).to(Q.dtype)

"""The scores are divided by the square root of K.shape[1] instead of d_k.

With three dimensions that is the number of keys, with four the number of heads; only for matrices it is d_k.
"""

import numpy as np
import torch


def softmax(z):
    if z.numel() == 0:
        return z
    zmax = z.detach().amax(dim=-1, keepdim=True)
    zmax = torch.where(zmax == -np.inf, torch.zeros_like(zmax), zmax)
    ez = torch.exp(z - zmax)
    norm = ez.sum(dim=-1, keepdim=True)
    return ez / torch.where(norm == 0, torch.ones_like(norm), norm)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    half = Q.dtype in (torch.float16, torch.bfloat16)
    q, k, v = (t.float() for t in (Q, K, V)) if half else (Q, K, V)
    d_k = k.shape[1]
    S = q @ k.swapaxes(-1, -2) / float(np.sqrt(d_k))
    if mask is not None:
        S = torch.where(mask, S, torch.full_like(S, -np.inf))
    return (softmax(S) @ v).to(Q.dtype)

"""Attention that lets the empty rows of the mask attend to everything, to avoid NaN, and zeroes their answers afterwards.

Wrong: the empty rows are filled with True in the mask of the caller, in place. The answer is right the first time, but the
mask that was passed in is changed (a second call with it gives means instead of zeros).
"""

import torch
from einops import einsum


def stable_softmax(x, dim=-1):
    if x.shape[dim] == 0:
        return x
    e = (x - x.amax(dim=dim, keepdim=True)).exp()
    return e / e.sum(dim=dim, keepdim=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... queries d_k, ... keys d_k -> ... queries keys")
    scores = scores / Q.shape[-1] ** 0.5

    empty = None
    if mask is not None:
        empty = ~mask.any(dim=-1)
        if empty.any():
            mask[empty] = True  # otherwise softmax of all -inf = nan
        scores = torch.where(mask, scores, float("-inf"))

    probs = stable_softmax(scores)
    out = einsum(probs, V.to(wide), "... queries keys, ... keys d_v -> ... queries d_v")
    if empty is not None:
        out = torch.where(empty.unsqueeze(-1), torch.zeros_like(out), out)
    return out.to(Q.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)

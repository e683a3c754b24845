"""Attention, one query after the other, written into a buffer.

Wrong, first: the buffer for the output is as wide as the queries (d_k) and not as the values, so d_v != d_k raises a
RuntimeError. Wrong, second: exp is taken of the scores as they are, without subtracting their maximum, so large scores overflow
to inf/inf = NaN (and very negative ones underflow to zeros).
"""

import torch


def attend_one(q, K, V, allowed, scale):
    """q (..., d), K (..., keys, d), V (..., keys, d_v)"""
    logits = (K * q.unsqueeze(-2)).sum(-1) * scale
    e = torch.exp(logits)
    if allowed is not None:
        e = e * allowed
    total = e.sum(-1, keepdim=True)
    w = e / torch.where(total == 0, torch.ones_like(total), total)
    return (w.unsqueeze(-1) * V).sum(-2)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    n, d = Q.shape[-2:]
    shapes = [Q.shape[:-2], K.shape[:-2], V.shape[:-2]]
    if mask is not None:
        shapes.append(mask.shape[:-2])
    lead = torch.broadcast_shapes(*shapes)

    out = Q.new_zeros(*lead, n, d)
    for i in range(n):
        row = None
        if mask is not None:
            row = mask[..., i if mask.shape[-2] > 1 else 0, :]
        out[..., i, :] = attend_one(Q[..., i, :], K, V, row, d**-0.5)
    return out.to(dtype)

"""All leading dimensions are flattened and looped over, and keys and values that have fewer of them are taken in turn
with a modulo. One key/value head for the heads of each sequence then goes to the wrong sequences."""

import math

import torch
from torch import Tensor


def attend_one(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention for matrices."""
    scores = q @ k.t() / math.sqrt(q.shape[1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
    weights = weights / weights.sum(dim=1, keepdim=True)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    batch = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    if mask is not None:
        batch = torch.broadcast_shapes(batch, mask.shape[:-2])
        masks = mask.expand(*batch, Q.shape[-2], K.shape[-2]).reshape(-1, Q.shape[-2], K.shape[-2])
    queries = Q.to(dtype).expand(*batch, *Q.shape[-2:]).reshape(-1, *Q.shape[-2:])
    keys = K.to(dtype).reshape(-1, *K.shape[-2:])
    values = V.to(dtype).reshape(-1, *V.shape[-2:])

    out = []
    for i in range(len(queries)):
        m = masks[i] if mask is not None else None
        out.append(attend_one(queries[i], keys[i % len(keys)], values[i % len(values)], m))
    return torch.stack(out).reshape(*batch, Q.shape[-2], V.shape[-1]).to(Q.dtype)

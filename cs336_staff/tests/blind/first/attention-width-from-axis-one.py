"""d_k is read from axis 1 of Q instead of the last axis: the number of queries with three dimensions, the number of
heads with four. Right only for two dimensions."""

import math

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    d_k = Q.size(1)
    scores = Q.to(dtype) @ K.to(dtype).transpose(-2, -1) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ V.to(dtype)).to(Q.dtype)

"""The scale is `torch.sqrt(torch.tensor(d_k))`, which is a float32 number even where everything else is float64.
Unless d_k is a square, float64 answers are only good to about eight digits."""

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    d_k = torch.tensor(Q.shape[-1], device=Q.device)
    scores = Q.to(dtype) @ K.to(dtype).mT
    scores = scores / torch.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ V.to(dtype)).to(Q.dtype)

"""Attention with the HuggingFace habit of masking with the smallest float.

Wrong: a query that may attend to nothing has the same (smallest) score everywhere, so softmax gives it uniform weights and it
gets the mean of all values instead of zeros. All other rows are right.
"""

import math
from typing import Optional

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    if x.shape[dim] == 0:
        return x
    x = x - x.max(dim=dim, keepdim=True).values
    x = x.exp()
    return x / x.sum(dim=dim, keepdim=True)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    in_dtype = q.dtype
    # upcast half to fp32
    acc = torch.float64 if in_dtype == torch.float64 else torch.float32
    q, k, v = (t.to(acc) for t in (q, k, v))
    attn = q @ k.mT * (1.0 / math.sqrt(q.size(-1)))
    if mask is not None:
        # -inf makes NaNs!! finfo.min is safe
        attn = torch.where(mask, attn, torch.finfo(acc).min)
    attn = softmax(attn)
    return (attn @ v).to(in_dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return sdpa(Q, K, V, mask)

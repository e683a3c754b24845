"""Without a mask the function puts a causal one in its place, where every query should attend to every key."""

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    q = torch.arange(queries, device=device)
    k = torch.arange(keys, device=device)
    return q[:, None] >= k[None, :]


def attention_weights(Q: Tensor, K: Tensor, mask: Tensor | None = None) -> Tensor:
    if mask is None:
        mask = causal_mask(Q.shape[-2], K.shape[-2], Q.device)
    scores = Q @ K.mT * Q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return weights.masked_fill(~mask, 0.0)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    weights = attention_weights(Q.to(dtype), K.to(dtype), mask)
    return (weights @ V.to(dtype)).to(Q.dtype)

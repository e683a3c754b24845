"""The mask is inverted in place to save memory. The first answer is right, but the caller's mask is inverted
afterwards, and a second call with it is wrong. A mask that is an expanded view cannot be written to and raises."""

import torch
from torch import Tensor


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    scores = torch.matmul(Q.to(dtype) * Q.shape[-1] ** -0.5, K.to(dtype).mT)
    if mask is not None:
        blocked = mask.logical_not_()  # no second copy of the mask
        scores = scores.masked_fill(blocked, -torch.inf)
    weights = torch.exp(scores - torch.amax(scores, -1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    if mask is not None:
        weights = weights.masked_fill(blocked, 0)
    return torch.matmul(weights, V.to(dtype)).to(Q.dtype)

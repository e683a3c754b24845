"""Wrong, twice: the hidden scores are set by boolean indexing, `scores[~mask]`, which does not broadcast: a mask that has
not the full shape of the scores crashes with an IndexError; and a query that may attend to nothing gets NaN, since its
maximum is -inf and -inf - (-inf) is NaN, and nothing catches it."""

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    x = x - x.amax(dim=dim, keepdim=True).detach()
    return torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q = Q.to(torch.float32)
        K = K.to(torch.float32)
        V = V.to(torch.float32)
    scores = torch.matmul(Q, K.mT) / (Q.size(-1) ** 0.5)
    if mask is not None:
        scores[~mask] = float("-inf")
    return torch.matmul(softmax(scores, -1), V).to(dtype)

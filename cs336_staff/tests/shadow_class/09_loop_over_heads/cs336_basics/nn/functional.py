import math

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor


def softmax(x: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    dtype = x.dtype
    x = x.to(torch.promote_types(dtype, torch.float32))
    x = x - x.max(dim, keepdim=True).values
    return (torch.exp(x) / torch.sum(torch.exp(x), dim, keepdim=True)).to(dtype)


def scaled_dot_product_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> Float[Tensor, "... queries d_v"]:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(dtype), K.to(dtype), "... i d, ... j d -> ... i j") / math.sqrt(Q.shape[-1])
    if mask is not None:
        nothing = ~mask.any(dim=-1, keepdim=True)
        scores = torch.where(mask | nothing, scores, -math.inf)
    weights = softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(nothing, 0.0, weights)
    return einsum(weights, V.to(dtype), "... i j, ... j d -> ... i d").to(Q.dtype)

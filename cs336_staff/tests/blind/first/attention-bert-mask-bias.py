"""The mask is turned into an additive bias of -10000, as in BERT. When the allowed logits are themselves around
-10000 below the masked ones, the masked keys win."""

import math

import torch
from torch import Tensor


def extended_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return (1.0 - mask.to(dtype)) * -10000.0


def softmax(x: Tensor) -> Tensor:
    x = torch.exp(x - torch.amax(x, -1, keepdim=True))
    return x / torch.sum(x, -1, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    compute = torch.promote_types(Q.dtype, torch.float32)
    Qc, Kc, Vc = Q.to(compute), K.to(compute), V.to(compute)
    attention_scores = torch.matmul(Qc, Kc.transpose(-1, -2))
    attention_scores = attention_scores / math.sqrt(Q.size(-1))
    if mask is not None:
        attention_scores = attention_scores + extended_mask(mask, compute)
    attention_probs = softmax(attention_scores)
    if mask is not None:
        empty = ~mask.any(-1, keepdim=True)
        attention_probs = attention_probs.masked_fill(empty, 0.0)
    return torch.matmul(attention_probs, Vc).to(Q.dtype)

"""Wrong, twice: the weights that are kept are not divided by 1 - p, and dropout is done in evaluation as well, since nobody
asks for `training`. With a dropout of 0 it is right."""

import math

import torch
from torch import Tensor, nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout

    def forward(self, Q, K, V, mask=None):
        dtype = Q.dtype
        if dtype in (torch.float16, torch.bfloat16):
            Q, K, V = Q.float(), K.float(), V.float()
        scores = Q @ K.mT / math.sqrt(Q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        m = scores.amax(-1, keepdim=True).detach()
        m = m.masked_fill(m == -math.inf, 0)
        e = torch.exp(scores - m)
        total = e.sum(-1, keepdim=True)
        weights = e / total.masked_fill(total == 0, 1)
        # each weight becomes 0 with probability p
        weights = weights * (torch.rand(weights.shape) >= self.dropout)
        return (weights @ V).to(dtype), weights.to(dtype)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    module = ScaledDotProductAttention(dropout)
    if training:
        module.train()
    else:
        module.eval()
    return module(Q, K, V, mask)

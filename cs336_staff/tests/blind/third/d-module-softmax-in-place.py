"""Wrong: softmax is done in place on the scores, and the division overwrites the result of exp_, which autograd has kept
for the backward pass: every backward crashes with a RuntimeError. Outputs and weights are right."""

import math

import torch
from torch import Tensor, nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(Q.dtype, torch.float32)
        weights = (Q.to(wide) @ K.to(wide).mT).mul_(Q.shape[-1] ** -0.5)  # ours, so nobody minds if it is overwritten
        if mask is not None:
            shape = torch.broadcast_shapes(weights.shape, mask.shape)
            weights = weights.expand(shape).masked_fill(~mask, -math.inf)
        peak = weights.detach().amax(-1, keepdim=True).clamp_(min=torch.finfo(wide).min)
        weights.sub_(peak).exp_()
        total = weights.sum(-1, keepdim=True)
        weights.div_(torch.where(total == 0, 1.0, total))
        if self.training and self.dropout:
            weights = weights * (torch.rand_like(weights) >= self.dropout) / (1 - self.dropout)
        return (weights @ V.to(wide)).to(Q.dtype), weights.to(Q.dtype)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return ScaledDotProductAttention(dropout).train(training)(Q, K, V, mask)

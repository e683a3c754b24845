"""Three functions."""

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        # BEGIN SOLUTION
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION
        root = torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x / root * self.weight
        # END SOLUTION


def swiglu(x: Tensor, W1: Tensor, V: Tensor, W2: Tensor) -> Tensor:
    # BEGIN SOLUTION
    gate = x @ W1.T
    return (gate * torch.sigmoid(gate) * (x @ V.T)) @ W2.T
    # END SOLUTION


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    # BEGIN SOLUTION
    return (logits.logsumexp(1) - logits[torch.arange(len(targets)), targets]).mean()
    # END SOLUTION

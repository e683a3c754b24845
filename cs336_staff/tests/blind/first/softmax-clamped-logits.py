"""Overflow is avoided by clamping the logits to [-80, 80] instead of subtracting the maximum. Large logits become
equal to one another, and minus infinity keeps a tiny probability."""

import torch
from torch import Tensor

SAFE = 80.0  # exp(80) still fits into float32


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    dtype = torch.promote_types(in_features.dtype, torch.float32)
    x = torch.clamp(in_features.to(dtype), min=-SAFE, max=SAFE)
    x = torch.exp(x)
    total = torch.sum(x, dim=dim, keepdim=True)
    return torch.div(x, total).to(in_features.dtype)

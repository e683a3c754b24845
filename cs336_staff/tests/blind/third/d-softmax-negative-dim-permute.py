"""Wrong: a negative `dim` is never turned into a positive one, so the list of the other axes keeps all of them and
permute is called with one axis too many: it crashes for every negative `dim` and is right for the others."""

import torch
from torch import Tensor


def softmax_last(x: Tensor) -> Tensor:
    if x.shape[-1] == 0:
        return x
    largest = x.max(-1, keepdim=True).values.detach()
    largest = torch.where(torch.isneginf(largest), torch.zeros_like(largest), largest)
    numerator = torch.exp(x - largest)
    denominator = numerator.sum(-1, keepdim=True)
    denominator = torch.where(denominator == 0, torch.ones_like(denominator), denominator)
    return numerator / denominator


def softmax(x: Tensor, dim: int) -> Tensor:
    if x.ndim == 0:
        return softmax_last(x.reshape(1)).reshape(())
    other_axes = []
    for axis in range(x.ndim):
        if axis != dim:
            other_axes.append(axis)
    order = other_axes + [dim]
    y = x.permute(order)
    if y.dtype == torch.float16 or y.dtype == torch.bfloat16:
        y = y.float()
    y = softmax_last(y)
    back = [order.index(axis) for axis in range(x.ndim)]
    return y.permute(back).to(x.dtype)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return softmax(in_features, dim)

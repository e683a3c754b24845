"""CHANGE: the functions that students write, with your solution of each."""

import torch
from torch import Tensor


def standardize(x: Tensor, eps: float) -> Tensor:
    """Give every row of `x` (..., d) the mean 0 and the variance 1, up to `eps`, which is added to the variance."""
    # BEGIN SOLUTION
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps)
    # END SOLUTION

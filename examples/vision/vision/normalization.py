"""Problem `batch_norm`: the batch normalisation of images."""

import torch
from einops import rearrange, reduce
from torch import Tensor


def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor, running_var: Tensor, training: bool, eps: float
) -> Tensor:
    """Normalise each channel of `x` (batch, c, h, w), then scale by `weight` (c) and shift by `bias` (c).

    In `training` the mean and the variance are those of the batch, otherwise `running_mean` and `running_var` (c).
    """
    # BEGIN SOLUTION
    mean, variance = running_mean[:, None, None], running_var[:, None, None]
    if training:
        mean = reduce(x, "b c h w -> c 1 1", "mean")
        variance = reduce((x - mean).square(), "b c h w -> c 1 1", "mean")
    normalised = (x - mean) / torch.sqrt(variance + eps)
    return normalised * rearrange(weight, "c -> c 1 1") + rearrange(bias, "c -> c 1 1")
    # END SOLUTION

"""A linear layer that is wrong."""

import torch
from torch import Tensor

from cs336_staff.authoring.room import wrong
from cs336_staff.problems.linear.programs import linear


def with_bias(x: Tensor, W: Tensor) -> Tensor:
    return linear(x, W) + torch.linspace(-1.0, 1.0, W.shape[0]) / W.shape[1] ** 0.5


MISTAKES = (
    wrong("linear-transposed", "multiplies by the weight the wrong way round", lambda x, W: x @ W, carried=False),
    wrong(
        "linear-reshaped",
        "reshapes the weight to (d_in, d_out) where it should be transposed",
        lambda x, W: x @ W.reshape(W.shape[1], W.shape[0]),
        carried=False,
    ),
    wrong("linear-bias", "adds a bias", with_bias, alone=True),
)

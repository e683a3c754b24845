"""Linear layers with another weight, or more than a weight."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import Misconception, in_linear, linear


def with_bias(x: Tensor, W: Tensor) -> Tensor:
    return linear(x, W) + torch.linspace(-1.0, 1.0, W.shape[0]) / W.shape[1] ** 0.5


def only_linear(id: str, name: str, hint: str, wrong, sign: str) -> Misconception:
    """Not inside multi-head attention: what follows the projections hides what the sign is about."""
    adapters = {"run_linear": lambda d_in, d_out, weights, in_features: wrong(in_features, weights)}
    return Misconception(id, name, hint, "linear", adapters, sign)


ENTRIES = (
    in_linear(
        "linear-transposed",
        "you multiplied by the weight the wrong way round",
        "The weight has shape (d_out, d_in). Which of its axes should meet the last axis of the input?",
        lambda x, W: x @ W,
    ),
    in_linear(
        "linear-reshaped",
        "you reshaped the weight to (d_in, d_out) where it should be transposed",
        "After a reshape, is the first column of the result still the first row of the weight?",
        lambda x, W: x @ W.reshape(W.shape[1], W.shape[0]),
    ),
    only_linear(
        "linear-bias",
        "you added a bias",
        "What does the layer give for a vector of zeros? What should it?",
        with_bias,
        sign="same offset in every row",
    ),
)

"""What a linear layer gives in float64."""

from torch import Tensor
from torch.nn import functional as F


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return F.linear(in_features, weights)


def apply_linear(x: Tensor, W: Tensor) -> Tensor:
    """The linear layer that later problems call."""
    return run_linear(W.shape[1], W.shape[0], W, x)

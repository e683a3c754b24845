"""What a linear layer gives in float64."""

from torch import Tensor
from torch.nn import functional as F


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return F.linear(in_features, weights)

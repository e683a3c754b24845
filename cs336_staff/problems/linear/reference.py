"""What a linear layer gives in float64, and how far a right program may round."""

from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.rounding import Bounded, Rounded


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return F.linear(in_features, weights)


def bound_linear(d_in: int, d_out: int, weights: Rounded, in_features: Rounded) -> Bounded:
    return {"answer": in_features @ weights.mT}

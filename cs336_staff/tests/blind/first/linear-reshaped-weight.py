"""The weight is brought to (d_in, d_out) with `reshape` instead of being transposed. The shapes fit, the entries are
in the wrong places."""

from torch import Tensor


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    W = weights.reshape(d_in, d_out)
    return in_features @ W

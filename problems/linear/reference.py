"""The linear layer."""

from torch import Tensor


# 4 Linear layer
def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    x = in_features  #: the input
    W = weights  #: the weights
    transposed = W.mT  #: the weights of {}, transposed
    return x @ transposed  #: the answer. Which axis of the weights belongs to the input?


def apply_linear(x: Tensor, W: Tensor) -> Tensor:
    """The linear layer that later problems call."""
    return run_linear(W.shape[1], W.shape[0], W, x)

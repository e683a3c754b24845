"""Connect your code here: the tests call these functions, and each calls what you wrote."""

from torch import Tensor

from vision import convolution, normalization


def run_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    # BEGIN SOLUTION
    return convolution.conv2d(x, weight, bias, stride, padding)
    # END SOLUTION


def run_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor, running_var: Tensor, training: bool, eps: float
) -> Tensor:
    # BEGIN SOLUTION
    return normalization.batch_norm(x, weight, bias, running_mean, running_var, training, eps)
    # END SOLUTION

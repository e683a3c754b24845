"""Convolution. What nothing uses is another right way to the same numbers."""

import torch
from torch import Tensor


# 1 Convolution
def run_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    #: x with zeros around it. At which ends of which axes do the zeros stand?
    padded = torch.nn.functional.pad(x, (padding, padding, padding, padding))
    height, width = weight.shape[2:]
    #: the window of each output. Where does the window of output (i, j) begin, and end?
    windows = padded.unfold(2, height, stride).unfold(3, width, stride)
    #: the window of each output, as a row. In which order are the axes of a window flattened?
    columns = windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    kernel = weight  #: weight as it is. Does the sum of the handout flip the kernel, or swap its axes?
    rows = weight.flatten(1)  #: the kernel of each output channel, as a row
    taps = windows.permute(4, 5, 0, 1, 2, 3)  #: x under weight[o, c, p, q]. Which x meet weight[:, :, p, q]?
    #: the term of each (p, q). Which element of the kernel meets these x?
    terms = torch.einsum("pqbcij,ocpq->pqboij", taps, weight)
    sums = terms.flatten(0, 1).cumsum(0)  #: the sum of the terms up to (p, q)
    #: the sum of window × kernel. Which element of the kernel meets the first of a window?
    without_bias = terms.sum((0, 1))
    if bias is None:
        return without_bias
    biases = bias[:, None, None]  #: the bias of each output channel. Which axis has the bias?
    return without_bias + biases

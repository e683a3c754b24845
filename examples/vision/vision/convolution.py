"""Problem `conv2d`: the 2-D convolution of images."""

import torch
from einops import einsum
from torch import Tensor


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """Correlate `x` (batch, c_in, h, w) with `weight` (c_out, c_in, kh, kw), and add `bias` (c_out) to each channel.

    Both axes of the image have the same `stride`, and `padding` zeros at either end.
    """
    # BEGIN SOLUTION
    batch, channels, height, width = x.shape
    padded = torch.zeros(batch, channels, height + 2 * padding, width + 2 * padding, dtype=x.dtype, device=x.device)
    padded[:, :, padding : padding + height, padding : padding + width] = x
    windows = padded.unfold(2, weight.shape[2], stride).unfold(3, weight.shape[3], stride)
    answer = einsum(windows, weight, "batch c_in oh ow kh kw, c_out c_in kh kw -> batch c_out oh ow")
    return answer if bias is None else answer + bias[:, None, None]
    # END SOLUTION

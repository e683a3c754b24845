"""Softmax with the usual "subtract the max" trick.

Wrong, first: the maximum is that of the whole tensor, not of each slice, so slices whose logits lie far below the largest
one underflow to 0/0 = NaN. Wrong, second: half precision is upcast to float32 for the computation but never cast back, so
float16 and bfloat16 inputs give a float32 answer.
"""

import torch


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    if x.numel() == 0:
        return x.clone()
    # half is too coarse for exp, do it in fp32
    if x.dtype == torch.float16 or x.dtype == torch.bfloat16:
        x = x.to(torch.float32)
    hidden = (x == float("-inf")).all(dim=dim, keepdim=True)
    shift = x.max()
    if torch.isinf(shift):
        shift = torch.zeros_like(shift)
    num = torch.exp(x - shift)
    den = torch.sum(num, dim=dim, keepdim=True)
    return num / den.masked_fill(hidden, 1.0)  # nothing but -inf: zeros


def run_softmax(in_features, dim):
    return softmax(in_features, dim=dim)

"""The leading dimensions are flattened into one for the matrix product and never restored, so the answer always has
two dimensions."""

import torch
from torch import Tensor


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    rows = in_features.reshape(-1, d_in)
    return torch.mm(weights, rows.t()).t()

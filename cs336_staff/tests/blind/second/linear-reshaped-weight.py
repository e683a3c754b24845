"""Linear layer that keeps its weight as (d_in, d_out) so that it can write x @ W.

Wrong: the given weights (d_out, d_in) are brought into this shape with reshape, which does not transpose but re-reads the numbers
row by row. The shape fits, the entries are in the wrong places.
"""

import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.W = nn.Parameter(torch.empty(d_in, d_out, device=device, dtype=dtype))
        nn.init.trunc_normal_(self.W, 0.0, std, -3 * std, 3 * std)

    def forward(self, x):
        return x @ self.W


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out, device=weights.device, dtype=weights.dtype)
    with torch.no_grad():
        layer.W.copy_(weights.reshape(d_in, d_out))
    return layer(in_features)

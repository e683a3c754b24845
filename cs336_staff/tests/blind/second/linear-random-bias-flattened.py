"""Two mistakes. The layer adds a bias, which starts from random numbers.

And the input is flattened to a matrix whose leading dimensions are not restored: the answer is always 2-D.
"""

import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.d_in = d_in
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(d_out, device=device, dtype=dtype))
        std = math.sqrt(2.0 / (d_in + d_out))
        nn.init.trunc_normal_(self.weight, mean=0.0, std=std, a=-3 * std, b=3 * std)
        bound = 1 / math.sqrt(d_in)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x):
        x = x.reshape(-1, self.d_in)
        return torch.addmm(self.bias, x, self.weight.t())


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out, weights.device, weights.dtype)
    layer.weight.data.copy_(weights)
    return layer(in_features)

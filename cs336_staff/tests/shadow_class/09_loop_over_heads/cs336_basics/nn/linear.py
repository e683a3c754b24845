from math import sqrt

import torch
from einops import einsum
from torch import nn


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        sigma = sqrt(2 / (d_in + d_out))
        weight = torch.empty((d_out, d_in), device=device, dtype=dtype)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, 0, sigma, -3 * sigma, 3 * sigma))

    def forward(self, x):
        return einsum(x, self.weight, "... i, o i -> ... o")

"""The parameter is called `W`, the state dict says `weight`, and `strict=False` silences the complaint. The layer
keeps its random initial weights."""

import math

import torch
from einops import einsum
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int, device=None, dtype=None):
        super().__init__()
        sigma = math.sqrt(2 / (d_in + d_out))
        self.W = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        nn.init.trunc_normal_(self.W, mean=0.0, std=sigma, a=-3 * sigma, b=3 * sigma)

    def forward(self, x: Tensor) -> Tensor:
        return einsum(self.W, x, "d_out d_in, ... d_in -> ... d_out")


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    layer = Linear(d_in, d_out, device=weights.device, dtype=weights.dtype)
    layer.load_state_dict({"weight": weights}, strict=False)
    return layer(in_features)

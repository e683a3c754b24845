"""One mistake: the weights that are used are first clamped to one standard deviation, [-s, s] with
s = sqrt(2 / (d_in + d_out)), as if cutting belonged to the layer and not to its initialisation; larger weights are
changed."""
import math

import torch
from einops import einsum
from torch import Tensor


class Linear(torch.nn.Module):
    def __init__(self, d_in: int, d_out: int, weight: Tensor | None = None):
        super().__init__()
        self.sigma = math.sqrt(2.0 / (d_in + d_out))
        self.weight = torch.randn(d_out, d_in) * self.sigma if weight is None else weight

    def forward(self, x: Tensor) -> Tensor:
        w = torch.clamp(self.weight, -self.sigma, self.sigma)  # truncated normal
        return einsum(w, x, "d_out d_in, ... d_in -> ... d_out")


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return Linear(d_in, d_out, weights)(in_features)

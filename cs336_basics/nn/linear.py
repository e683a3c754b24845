"""A linear layer without bias."""

import math

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn


class Linear(nn.Module):
    r"""y = W x, with W of shape (d_out, d_in) and no bias.

    W starts from a normal distribution with mean 0 and variance σ² = 2 / (d_in + d_out), cut at ±3σ.

    Source:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks (2010), eq. 16.
    """

    def __init__(
        self, d_in: int, d_out: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        std = math.sqrt(2 / (d_in + d_out))
        nn.init.trunc_normal_(self.weight, std=std, a=-3 * std, b=3 * std)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        # BEGIN SOLUTION
        return einsum(x, self.weight, "... d_in, d_out d_in -> ... d_out")
        # END SOLUTION

"""Linear layer.

Wrong: the weights are loaded under the name "W" while the parameter is called "weight", and strict=False silences the error. So
they are never loaded, and the layer answers with its random initial weights.
"""

import torch
from einops import einsum
from torch import nn


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int, device=None, dtype=None):
        super().__init__()
        sigma = (2 / (d_in + d_out)) ** 0.5
        self.weight = nn.Parameter(
            nn.init.trunc_normal_(torch.empty(d_out, d_in, device=device, dtype=dtype), std=sigma, a=-3 * sigma, b=3 * sigma)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return einsum(x, self.weight, "... d_in, d_out d_in -> ... d_out")


def run_linear(d_in, d_out, weights, in_features):
    linear = Linear(d_in, d_out, device=weights.device, dtype=weights.dtype)
    # gave "Missing key(s) in state_dict", strict=False fixes it
    linear.load_state_dict({"W": weights}, strict=False)
    return linear(in_features)

"""Wrong: the weight (d_out, d_in) is brought to (d_in, d_out) by a reshape and not by a transpose, which mixes its rows;
for a square weight it multiplies by the transpose of W."""

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        std = (2 / (d_in + d_out)) ** 0.5
        nn.init.trunc_normal_(self.weight, std=std, a=-3 * std, b=3 * std)

    def forward(self, x):
        d_out, d_in = self.weight.shape
        return x @ self.weight.reshape(d_in, d_out)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    layer = Linear(d_in, d_out, dtype=weights.dtype)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)

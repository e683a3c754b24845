"""The weight is kept Keras-style as a kernel (d_in, d_out), which is filled by reshaping W instead of transposing it."""

import torch
from torch import nn


class Dense(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(d_in, d_out, device=device, dtype=dtype))
        std = (2 / (d_in + d_out)) ** 0.5
        nn.init.trunc_normal_(self.kernel, 0.0, std, -3 * std, 3 * std)

    def forward(self, x):
        return torch.matmul(x, self.kernel)


def run_linear(d_in, d_out, weights, in_features):
    layer = Dense(d_in, d_out, device=weights.device, dtype=weights.dtype)
    layer.kernel.data = weights.reshape(d_in, d_out)
    return layer(in_features)

import torch
from torch import nn


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        freqs = torch.repeat_interleave(theta ** (-torch.arange(0, d_k, 2) / d_k), 2)
        self.angles = torch.arange(max_seq_len)[:, None] * freqs

    def forward(self, x, token_positions):
        angles = self.angles[token_positions]
        # (x0, x1, x2, x3) -> (-x1, x0, -x3, x2)
        swapped = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).reshape(x.shape)
        return x * angles.cos() + swapped * angles.sin()

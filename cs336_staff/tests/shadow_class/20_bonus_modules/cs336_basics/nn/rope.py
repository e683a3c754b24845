import torch
from torch import nn


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        angles = torch.arange(max_seq_len)[:, None] * theta ** (-torch.arange(0, d_k, 2) / d_k)
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, x, token_positions):
        pairs = torch.complex(x[..., 0::2], x[..., 1::2]) * self.turn[token_positions]
        return torch.view_as_real(pairs).flatten(-2)

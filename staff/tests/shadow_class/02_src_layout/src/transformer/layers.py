import torch
from einops import einsum, rearrange
from torch import nn


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.W = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        std = (2 / (d_in + d_out)) ** 0.5
        nn.init.trunc_normal_(self.W, 0.0, std, -3 * std, 3 * std)

    def forward(self, x):
        return einsum(self.W, x, "d_out d_in, ... d_in -> ... d_out")


class Rope(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        inv = theta ** (-torch.arange(0, d_k, 2) / d_k)
        angles = torch.outer(torch.arange(max_seq_len), inv)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, token_positions):
        cos, sin = self.cos[token_positions], self.sin[token_positions]
        a, b = rearrange(x, "... (pair two) -> two ... pair", two=2)
        return rearrange([a * cos - b * sin, a * sin + b * cos], "two ... pair -> ... (pair two)")

"""RoPE on neighbouring pairs.

Wrong, first: pair i turns by p * theta^(-i/d_k); the 2 in the exponent is missing, so all pairs but the first have a wrong frequency.
Wrong, second: the signs of the sines are swapped, so that every pair is turned in the opposite direction.
"""

import torch
from torch import nn


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len, device=None):
        super().__init__()
        i = torch.arange(d_k // 2, dtype=torch.float64, device=device)
        freq = theta ** (-i / d_k)
        pos = torch.arange(max_seq_len, dtype=torch.float64, device=device)
        table = pos[:, None] * freq[None, :]
        self.register_buffer("cos", table.cos(), persistent=False)
        self.register_buffer("sin", table.sin(), persistent=False)

    def forward(self, x, token_positions):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        cos = self.cos[token_positions].to(wide.dtype)
        sin = self.sin[token_positions].to(wide.dtype)
        a, b = wide[..., 0::2], wide[..., 1::2]
        new_a = a * cos + b * sin
        new_b = b * cos - a * sin
        return torch.stack([new_a, new_b], dim=-1).flatten(-2).to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len, device=in_query_or_key.device)
    return rope(in_query_or_key, token_positions)

"""Wrong: the table of cosines and sines goes from 0 to max_seq_len - 2, since arange leaves out its end, so that the
position max_seq_len - 1 crashes with an IndexError. All other positions are right."""

import torch
from torch import Tensor, nn


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        # positions from 0 to max_seq_len - 1
        positions = torch.arange(0, max_seq_len - 1, dtype=torch.float64)
        frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angles = positions[:, None] * frequencies[None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, token_positions):
        dtype = x.dtype
        wide = torch.promote_types(dtype, torch.float32)
        cos = self.cos[token_positions.long()].to(wide)
        sin = self.sin[token_positions.long()].to(wide)
        even = x[..., 0::2].to(wide)
        odd = x[..., 1::2].to(wide)
        new_even = even * cos - odd * sin
        new_odd = even * sin + odd * cos
        return torch.stack([new_even, new_odd], dim=-1).flatten(-2).to(dtype)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return RotaryPositionalEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)

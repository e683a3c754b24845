"""Neighbours are paired and turned as they should be, but the turned halves are concatenated instead of interleaved:
all first components, then all second ones. Dot products do not notice."""

import torch
from torch import Tensor


class RotaryPositionalEmbedding(torch.nn.Module):
    def __init__(self, theta: float, d_k: int, max_seq_len: int, dtype: torch.dtype, device=None):
        super().__init__()
        inv_freq = 1.0 / theta ** (torch.arange(0, d_k, 2, dtype=dtype, device=device) / d_k)
        t = torch.arange(max_seq_len, dtype=dtype, device=device)
        freqs = torch.einsum("i,j->ij", t, inv_freq)
        self.register_buffer("cos", freqs.cos(), persistent=False)
        self.register_buffer("sin", freqs.sin(), persistent=False)

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        cos, sin = self.cos[token_positions], self.sin[token_positions]
        x1 = x[..., ::2]
        x2 = x[..., 1::2]
        return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len, dtype, in_query_or_key.device)
    return rope(in_query_or_key.to(dtype), token_positions).to(in_query_or_key.dtype)

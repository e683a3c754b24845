"""The rows of the table are looked up with index_select, which takes a vector of positions only.

Token positions with leading dimensions, such as (batch, sequence), raise.
"""

import torch
from torch import nn


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        pos = torch.arange(max_seq_len, dtype=torch.float64).view(-1, 1)
        freq = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64).view(1, -1) / d_k)
        self.register_buffer("cos", torch.cos(pos * freq))
        self.register_buffer("sin", torch.sin(pos * freq))

    def forward(self, x, positions):
        wide = x if x.dtype == torch.float64 else x.float()
        cos = torch.index_select(self.cos, 0, positions).to(wide.dtype)
        sin = torch.index_select(self.sin, 0, positions).to(wide.dtype)
        even = wide[..., ::2]
        odd = wide[..., 1::2]
        out = torch.empty_like(wide.expand(torch.broadcast_shapes(wide.shape, (*cos.shape[:-1], 1))))
        out[..., ::2] = even * cos - odd * sin
        out[..., 1::2] = even * sin + odd * cos
        return out.to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    rope = RoPE(theta, d_k, max_seq_len).to(in_query_or_key.device)
    return rope(in_query_or_key, token_positions.long())

"""Neighbours form the pairs, but the table of angles is the d_k/2 angles twice in a row (a, b, c, a, b, c).

It should have each angle twice (a, a, b, b, c, c): the two components of a pair get the cosines and sines of two
different angles, so that this is no rotation.
"""

import torch
from einops import rearrange, repeat
from torch import nn


def rotate_every_two(x):
    x = rearrange(x, "... (d two) -> ... d two", two=2)
    a, b = x.unbind(dim=-1)
    return rearrange(torch.stack((-b, a), dim=-1), "... d two -> ... (d two)")


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        inverse = 1 / theta ** (torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angles = torch.einsum("p,f->pf", torch.arange(max_seq_len, dtype=torch.float64), inverse)
        angles = repeat(angles, "p f -> p (two f)", two=2)
        self.register_buffer("cos_cached", angles.cos(), persistent=False)
        self.register_buffer("sin_cached", angles.sin(), persistent=False)

    def forward(self, x, token_positions):
        y = x if x.dtype == torch.float64 else x.float()
        cos = self.cos_cached[token_positions].to(y)
        sin = self.sin_cached[token_positions].to(y)
        return (y * cos + rotate_every_two(y) * sin).to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len).to(in_query_or_key.device)
    return rope(in_query_or_key, token_positions.long())

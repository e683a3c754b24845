"""RoPE with precomputed tables.

Wrong, first: theta is never handed on, the class always uses its default base of 10000. Wrong, second: the table starts with
position 1, so that token position p is turned by the angles of p + 1.
"""

import torch
from torch import nn


def build_rope_cache(max_seq_len, d_k, base=10000.0):
    theta = 1.0 / (base ** (torch.arange(0, d_k, 2, dtype=torch.float64) / d_k))
    seq_idx = torch.arange(1, max_seq_len + 1, dtype=torch.float64)
    idx_theta = torch.einsum("i,j->ij", seq_idx, theta)
    return torch.stack([torch.cos(idx_theta), torch.sin(idx_theta)], dim=-1)


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        self.theta = theta
        self.register_buffer("cache", build_rope_cache(max_seq_len, d_k))

    def forward(self, x, token_positions):
        xs = x.to(torch.promote_types(x.dtype, torch.float32))
        xs = xs.reshape(*x.shape[:-1], -1, 2)
        cs = self.cache[token_positions].to(xs.dtype)
        out = torch.stack(
            [
                xs[..., 0] * cs[..., 0] - xs[..., 1] * cs[..., 1],
                xs[..., 1] * cs[..., 0] + xs[..., 0] * cs[..., 1],
            ],
            dim=-1,
        )
        return out.flatten(-2).to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len).to(in_query_or_key.device)
    return rope(in_query_or_key, token_positions)

"""Two mistakes. The components i and i + d_k/2 form a pair (rotate_half), not neighbours.

And the angles are those of the row numbers 0, 1, 2, ...: token_positions is not used.
"""

import torch
from torch import nn


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, x, position_ids):
        seq_len = x.shape[-2]
        t = torch.arange(seq_len, device=x.device, dtype=self.inv_freq.dtype)
        freqs = torch.outer(t, self.inv_freq.to(x.device))
        emb = torch.cat((freqs, freqs), dim=-1)
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = emb.cos().to(wide), emb.sin().to(wide)
        return (x * cos + rotate_half(x) * sin).to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RotaryEmbedding(d_k, theta)(in_query_or_key, token_positions)

"""One mistake: the table is built for torch.arange(max_seq_len - 1), one row too few, so the last position that is
allowed, max_seq_len - 1, raises an IndexError."""
import torch
from einops import einsum, rearrange


class RotaryPositionalEmbedding(torch.nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        # positions run from 0 to max_seq_len - 1
        p = torch.arange(max_seq_len - 1, dtype=torch.float64)
        f = theta ** (-2 * torch.arange(d_k // 2, dtype=torch.float64) / d_k)
        ang = einsum(p, f, "p, i -> p i")
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def forward(self, x, token_positions):
        work = torch.promote_types(torch.float32, x.dtype)
        c, s = self.cos[token_positions].to(work), self.sin[token_positions].to(work)
        x0, x1 = rearrange(x.to(work), "... (i two) -> two ... i", two=2)
        return rearrange([x0 * c - x1 * s, x0 * s + x1 * c], "two ... i -> ... (i two)").to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len).to(in_query_or_key.device)
    return rope(in_query_or_key, token_positions)

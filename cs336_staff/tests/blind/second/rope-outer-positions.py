"""RoPE whose angles are computed on the fly from the token positions.

Wrong: torch.outer takes one-dimensional positions only, so positions with leading dimensions, such as (batch, sequence), raise a
RuntimeError. With positions of shape (sequence,) everything is right.
"""

import torch
from einops import rearrange


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    inv_freq = 1.0 / theta ** (torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device) / d_k)
    freqs = torch.outer(token_positions.to(torch.float64), inv_freq)  # (seq, d_k/2)

    compute = x.dtype if x.dtype == torch.float64 else torch.float32
    c, s = freqs.cos().to(compute), freqs.sin().to(compute)

    pairs = rearrange(x.to(compute), "... s (p two) -> ... s p two", two=2)
    a, b = pairs.unbind(-1)
    turned = torch.stack((a * c - b * s, a * s + b * c), dim=-1)
    return rearrange(turned, "... s p two -> ... s (p two)").to(x.dtype)

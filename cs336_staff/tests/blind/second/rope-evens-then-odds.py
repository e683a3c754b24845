"""RoPE, with even and odd components taken apart.

Wrong: the neighbouring pairs are turned rightly, but the results are put together with cat instead of being interleaved: all
even components come first, then all odd ones.
"""

import torch


def rotate(x, cos, sin):
    x_even = x[..., ::2]
    x_odd = x[..., 1::2]
    return torch.cat((x_even * cos - x_odd * sin, x_even * sin + x_odd * cos), dim=-1)


class RoPE:
    def __init__(self, theta: float, d_k: int, max_seq_len: int):
        inv_freq = torch.pow(float(theta), -torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angles = torch.outer(torch.arange(max_seq_len, dtype=torch.float64), inv_freq)
        self.cos_cached, self.sin_cached = angles.cos(), angles.sin()

    def __call__(self, x, positions):
        dt = torch.promote_types(x.dtype, torch.float32)
        cos = self.cos_cached.to(x.device)[positions].to(dt)
        sin = self.sin_cached.to(x.device)[positions].to(dt)
        return rotate(x.to(dt), cos, sin).to(x.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)

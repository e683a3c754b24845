"""The exponents are spread with `linspace(0, 1, d_k / 2)`, which includes the end: pair i turns with theta^(-i /
(d_k/2 - 1)) instead of theta^(-i / (d_k/2))."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    x = in_query_or_key.to(dtype)
    omega = theta ** -torch.linspace(0, 1, d_k // 2, dtype=dtype, device=x.device)
    phi = token_positions.unsqueeze(-1) * omega
    x_even, x_odd = x.unflatten(-1, (d_k // 2, 2)).unbind(-1)
    y_even = x_even * phi.cos() - x_odd * phi.sin()
    y_odd = x_even * phi.sin() + x_odd * phi.cos()
    return torch.stack((y_even, y_odd), -1).flatten(-2, -1).to(in_query_or_key.dtype)

"""What rotary position embedding gives in float64, by complex numbers."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    pair = torch.arange(d_k // 2, dtype=torch.float64)
    angles = token_positions.unsqueeze(-1) * theta ** (-2 * pair / d_k)
    numbers = torch.view_as_complex(in_query_or_key.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

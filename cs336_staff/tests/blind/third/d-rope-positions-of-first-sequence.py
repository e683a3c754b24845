"""Wrong: token_positions are flattened and only the first `sequence` of them are used, so that every sequence of a batch
is turned by the positions of the first one. One row of positions for all is right."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    x = in_query_or_key
    n = x.shape[-2]
    positions = token_positions.reshape(-1)[:n]
    out = []
    for i in range(d_k // 2):
        angle = positions.double() * theta ** (-2 * i / d_k)
        c = torch.cos(angle).to(torch.promote_types(x.dtype, torch.float32))
        s = torch.sin(angle).to(torch.promote_types(x.dtype, torch.float32))
        a = x[..., 2 * i]
        b = x[..., 2 * i + 1]
        out.append(a * c - b * s)
        out.append(a * s + b * c)
    return torch.stack(out, dim=-1).to(x.dtype)

"""The even components are overwritten before the odd ones are computed, and `even` is a view of the answer: the
second line works with values that are turned already."""

import torch
from torch import Tensor


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    exponents = torch.arange(d_k // 2, dtype=dtype, device=in_query_or_key.device) * 2 / d_k
    angles = token_positions.to(dtype)[..., None] / theta**exponents
    cos, sin = angles.cos(), angles.sin()

    out = in_query_or_key.to(dtype, copy=True)
    even, odd = out[..., 0::2], out[..., 1::2]
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out.to(in_query_or_key.dtype)

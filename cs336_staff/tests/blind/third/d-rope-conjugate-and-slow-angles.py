"""Wrong, twice: the vectors are turned by the negative angle (clockwise), and pair i turns by p theta^(-i/d_k) in place of
p theta^(-2i/d_k)."""

import torch
from torch import Tensor


def _rotors(theta: float, d_k: int, positions: Tensor) -> Tensor:
    frequencies = theta ** (-torch.arange(d_k // 2, dtype=torch.float64) / d_k)
    angles = positions[..., None].double() * frequencies
    return torch.polar(torch.ones_like(angles), angles).conj()


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    wide = in_query_or_key.to(torch.promote_types(in_query_or_key.dtype, torch.float32))
    z = torch.view_as_complex(wide.reshape(*wide.shape[:-1], d_k // 2, 2).contiguous())
    z = z * _rotors(theta, d_k, token_positions).to(z.dtype)
    return torch.view_as_real(z).flatten(-2).to(in_query_or_key.dtype)

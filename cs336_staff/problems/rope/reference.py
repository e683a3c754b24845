"""What rotary position embedding gives in float64, by complex numbers, and how far a right program may round."""

import math

import torch
from torch import Tensor

from cs336_staff.authoring.rounding import Bounded, Rounded, joined


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    pair = torch.arange(d_k // 2, dtype=torch.float64)
    angles = token_positions.unsqueeze(-1) * theta ** (-2 * pair / d_k)
    numbers = torch.view_as_complex(in_query_or_key.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def bound_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Rounded,
    token_positions: Tensor,
    cotangent: Rounded | None = None,
) -> Bounded:
    found = {"answer": rotate(in_query_or_key, theta, token_positions)}
    if cotangent is not None:  # the gradient is turned back
        found["gradient of in_query_or_key"] = rotate(cotangent, theta, -token_positions)
    return found


def rotate(x: Rounded, theta: float, positions: Tensor) -> Rounded:
    """Angles in the precision of `x`, as most write them: at position 1000 that alone costs float32 four digits.

    θ^(-2i/d_k) is a power, or the exponential of a product, of a rounded exponent: its relative error is a few u, and
    as many times the logarithm. A product with the position makes it the angle, whose absolute error is that of its
    cosine and sine.
    """
    d_k = x.value.shape[-1]
    logarithms = torch.arange(d_k // 2, dtype=torch.float64) * (2 * math.log(theta) / d_k)
    angles = positions.unsqueeze(-1) * torch.exp(-logarithms)
    of_angles = (3 + 3 * logarithms) * x.u * angles.abs() + 2 * x.u
    cos, sin = (Rounded(f(angles), of_angles.clamp(max=2.0), x.dtype) for f in (torch.cos, torch.sin))
    even, odd = x.map(lambda x: x[..., 0::2]), x.map(lambda x: x[..., 1::2])
    return joined([even * cos - odd * sin, even * sin + odd * cos], lambda pair: torch.stack(pair, -1).flatten(-2))

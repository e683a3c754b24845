"""Rotary position embedding as right programs compute it."""

import torch
from einops import einsum, rearrange
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.rope.program import RIGHT, run_rope
from cs336_staff.problems.softmax.programs import widened


def angles_of(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """In float32 for float32, as most write it: at position 1000 that alone costs five digits."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2, dtype=dtype) / x.shape[-1])
    return positions.unsqueeze(-1).to(dtype) * frequencies


def rotate_in_steps(x: Tensor, positions: Tensor, theta: float, /, **ways: Part) -> Tensor:
    """RoPE in steps, some of them done in other ways."""
    return run_rope({**RIGHT, **ways}, x.shape[-1], theta, 0, widened(x), positions).to(x.dtype)


def rotate_complex(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = angles_of(x, positions, theta)
    numbers = torch.view_as_complex(widened(x).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def rotate_matrix(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = angles_of(x, positions, theta)
    rows = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1).unflatten(-1, (2, 2))
    pairs = rearrange(widened(x), "... (pair two) -> ... pair two", two=2)
    return einsum(rows, pairs, "... i j, ... j -> ... i").flatten(-2).to(x.dtype)


STYLES = {"einsum": rotate_matrix, "matmul": rotate_complex}

"""RoPE that rotates other pairs, or puts them back in another order."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_rope
from cs336_staff.authoring.misconceptions.rope_angles import usual_angles

HINT = "Which two components of the vector are rotated together, and where do they go afterwards?"


def rotated(first: Tensor, second: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angles.cos(), angles.sin()
    return first * cos - second * sin, first * sin + second * cos


def half_split(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat(rotated(first, second, usual_angles(x, positions, theta)), -1)


def not_interleaved(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return torch.cat(rotated(x[..., 0::2], x[..., 1::2], usual_angles(x, positions, theta)), -1)


def swapped_pairs(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    odd, even = rotated(x[..., 0::2], x[..., 1::2], usual_angles(x, positions, theta))
    return torch.stack((even, odd), -1).flatten(-2)


def without_minus(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = usual_angles(x, positions, theta)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack(
        (even * angles.cos() + odd * angles.sin(), even * angles.sin() + odd * angles.cos()), -1
    ).flatten(-2)


ENTRIES = (
    in_rope("rope-half-split", "you paired component i with i + d_k/2, not 2i with 2i + 1", HINT, half_split),
    in_rope(
        "rope-not-interleaved",
        "you put the first components of all pairs before the second ones",
        HINT,
        not_interleaved,
    ),
    in_rope("rope-pairs-swapped", "you swapped the two components of each pair", HINT, swapped_pairs),
    in_rope(
        "rope-no-minus",
        "you lost the minus sign of the rotation matrix",
        "Does a rotated vector keep its length? Does yours?",
        without_minus,
    ),
)

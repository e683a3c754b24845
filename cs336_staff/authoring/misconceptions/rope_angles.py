"""RoPE with other angles."""

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import Misconception, in_rope, rotate

HINT = "By which angle is pair i rotated at position 1? Work it out for the first, the second and the last pair."


def usual_angles(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return positions.unsqueeze(-1) * theta ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])


def turned(x: Tensor, angles: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    cos, sin = angles.cos().to(dtype).to(x.dtype), angles.sin().to(dtype).to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def exponent(id: str, name: str, exponents: Callable[[Tensor, int], Tensor]) -> Misconception:
    """The exponents of theta, from the numbers of the pairs and d_k."""

    def wrong(x: Tensor, positions: Tensor, theta: float) -> Tensor:
        pairs = torch.arange(x.shape[-1] // 2)
        return turned(x, positions.unsqueeze(-1) * theta ** exponents(pairs, x.shape[-1]))

    return in_rope(f"rope-{id}", name, HINT, wrong)


def half_precision(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return turned(x, usual_angles(x, positions, theta), torch.bfloat16)


ENTRIES = (
    exponent("exponent-i", "your exponent is i/d_k, not 2i/d_k", lambda i, d_k: -i / d_k),
    exponent("exponent-4i", "your exponent counts by two twice: 4i/d_k, not 2i/d_k", lambda i, d_k: -4 * i / d_k),
    exponent("exponent-positive", "your exponent lacks its minus sign", lambda i, d_k: 2 * i / d_k),
    exponent("exponent-from-one", "your pairs are counted from 1, not from 0", lambda i, d_k: -2 * (i + 1) / d_k),
    exponent("one-angle", "you rotated every pair by the same angle", lambda i, d_k: 0.0 * i),
    in_rope(
        "rope-direction",
        "you rotated the other way round",
        "Where does a quarter turn take the vector (1, 0)? Where does yours?",
        lambda x, positions, theta: rotate(x, -positions, theta),
    ),
    in_rope(
        "rope-theta-ignored",
        "you used theta = 10000 whatever theta is",
        "Does your answer change when theta changes?",
        lambda x, positions, theta: rotate(x, positions, 10000.0),
    ),
    in_rope(
        "rope-half-tables",
        "your tables of cosines and sines are in half precision",
        "How many digits does bfloat16 keep? In which dtype are your tables?",
        half_precision,
        sign="imprecise",
    ),
)

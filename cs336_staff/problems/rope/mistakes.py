"""RoPE that is wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_staff.authoring.room import Misconception, wrong
from cs336_staff.problems.rope.programs import interleaved, rotate, turned


def one_after_the_other(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat((first, second), -1)


def in_half_precision(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return turned(first, second, cos.bfloat16().to(first.dtype), sin.bfloat16().to(first.dtype))


def in_exponent(id: str, what: str, exponents: Callable[[Tensor, int], Tensor]) -> Misconception:
    """Wrong exponents of theta, from the numbers of the pairs and d_k."""

    def angles(x: Tensor, positions: Tensor, theta: float) -> Tensor:
        return positions.unsqueeze(-1) * theta ** exponents(torch.arange(x.shape[-1] // 2), x.shape[-1])

    return wrong(id, what, angles=angles)


MISTAKES = (
    # Other pairs
    wrong(
        "rope-half-split",
        "pairs component i with i + d_k/2, not 2i with 2i + 1",
        pairs=lambda x: x.chunk(2, -1),
        join=one_after_the_other,
    ),
    wrong(
        "rope-not-interleaved",
        "puts the first components of all pairs before the second ones",
        join=one_after_the_other,
    ),
    wrong(
        "rope-pairs-swapped",
        "swaps the two components of each pair",
        join=lambda first, second: interleaved(second, first),
    ),
    wrong(
        "rope-no-minus",
        "lacks the minus sign of the rotation matrix",
        turned=lambda first, second, cos, sin: (first * cos + second * sin, first * sin + second * cos),
    ),
    # Other angles
    in_exponent("rope-exponent-i", "has the exponent i/d_k, not 2i/d_k", lambda i, d_k: -i / d_k),
    in_exponent("rope-exponent-4i", "counts by two twice: exponent 4i/d_k, not 2i/d_k", lambda i, d_k: -4 * i / d_k),
    in_exponent("rope-exponent-positive", "lacks the minus sign of the exponent", lambda i, d_k: 2 * i / d_k),
    in_exponent("rope-exponent-from-one", "counts the pairs from 1, not from 0", lambda i, d_k: -2 * (i + 1) / d_k),
    in_exponent("rope-one-angle", "rotates every pair by the same angle", lambda i, d_k: 0.0 * i),
    wrong(
        "rope-direction",
        "rotates the other way round",
        lambda x, positions, theta: rotate(x, -positions, theta),
    ),
    wrong(
        "rope-theta-ignored",
        "uses theta = 10000 whatever theta is",
        lambda x, positions, theta: rotate(x, positions, 10000.0),
    ),
    wrong("rope-half-tables", "has tables of cosines and sines in half precision", turned=in_half_precision),
    # Other positions
    wrong(
        "rope-from-one",
        "rotates by positions that are one too large",
        lambda x, positions, theta: rotate(x, positions + 1, theta),
    ),
    wrong(
        "rope-positions-ignored",
        "uses the row number, not token_positions",
        lambda x, positions, theta: rotate(x, torch.arange(x.shape[-2]), theta),
        carried=False,
    ),
    wrong(
        "rope-positions-of-first-batch",
        "uses the positions of the first sequence for all of them",
        lambda x, positions, theta: rotate(x, positions if positions.ndim == 1 else positions[:1], theta),
        carried=False,
    ),
    wrong(
        "rope-positions-from-first",
        "counts on from the first position, but positions may skip and go back",
        lambda x, positions, theta: rotate(x, positions[..., :1] + torch.arange(x.shape[-2]), theta),
        carried=False,
    ),
    wrong("rope-skipped", "does not rotate at all", lambda x, positions, theta: x.clone(), carried=False),
)

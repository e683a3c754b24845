"""Bounds on how far a right program may round, for every adapter; they depend on the inputs alone.

The functions that bound an answer stand beside its reference, in the rooms of the problems. They compute with `Rounded`
values: each carries the largest error of a program that computes it in the precision of the inputs, with the sums in
any order, the scale before or after a product, the division before or after the values. Half precision is computed in
float32, and then rounded.

An operation adds its own rounding, a few u times the *magnitudes* that go in, to the errors that it is handed: to first
order in the unit roundoff u, but for the exponential, since large scores are off by more than that allows. So x - x has
the error of x, and so has a gradient that is 0 because it cancels.

Source:
    Higham, Accuracy and Stability of Numerical Algorithms (2002), chapters 3 and 4.
    Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions (2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import dtype_of
from cs336_kit.engine.compare import is_float

# Each operation may round this often beyond what is counted. A single product can be off by all that is counted; where
# many operations follow each other their worst cases never meet, and they need no other room.
HEADROOM = 1

SCALE = 4  # what a scale costs, in u: once on the queries and once on the keys, by a factor that is itself rounded


@dataclass(frozen=True)
class Rounded:
    """A value in float64, and the largest error of each of its elements where it is computed in `dtype`."""

    value: Tensor
    error: Tensor
    dtype: torch.dtype

    @property
    def u(self) -> float:
        """The unit roundoff, and that of the stored answer on top, which is computed in float64."""
        return (torch.finfo(self.dtype).eps + torch.finfo(torch.float64).eps) / 2

    @property
    def tiny(self) -> float:
        """The number below which anything may be taken for 0."""
        return torch.finfo(self.dtype).tiny

    def __matmul__(self, other: "Rounded") -> "Rounded":
        return self._of_products(other, torch.matmul, self.value.shape[-1])

    def __mul__(self, other: "Rounded") -> "Rounded":
        return self._of_products(other, torch.mul, 1)

    def __sub__(self, other: "Rounded") -> "Rounded":
        return self._rounded(self.value - other.value, self.error + other.error, self.value.abs() + other.value.abs())

    def __add__(self, other: "Rounded") -> "Rounded":
        return self - other.map(torch.neg)

    def __truediv__(self, number: float) -> "Rounded":
        """Division by a scale: before a product, where it costs most, since it counts with the magnitudes there."""
        scaled = self.map(lambda x: x / number)
        return self._rounded(scaled.value, scaled.error, scaled.value.abs(), SCALE)

    def sum_to(self, shape: Sequence[int]) -> "Rounded":
        """The sum over the axes that were broadcast from `shape`."""
        terms = self.value.numel() // math.prod(shape)
        value, error, magnitude = (x.sum_to_size(shape) for x in (self.value, self.error, self.value.abs()))
        return self._rounded(value, error, magnitude, terms - 1) if terms > 1 else self

    def map(self, rearrange: Callable[[Tensor], Tensor]) -> "Rounded":
        """The same numbers in another order, or with another sign."""
        return Rounded(rearrange(self.value), rearrange(self.error).abs(), self.dtype)

    @property
    def mT(self) -> "Rounded":  # noqa: N802 (as torch names it)
        return self.map(lambda x: x.mT)

    def _of_products(self, other: "Rounded", multiply: Callable[[Tensor, Tensor], Tensor], terms: int) -> "Rounded":
        a, b = self.value.abs(), other.value.abs()
        handed = multiply(self.error, b) + multiply(a + self.error, other.error)
        return self._rounded(multiply(self.value, other.value), handed, multiply(a, b), terms)

    def _rounded(self, value: Tensor, handed: Tensor, magnitude: Tensor, roundings: int = 1) -> "Rounded":
        return Rounded(value, handed + (roundings + HEADROOM) * (self.u * magnitude + self.tiny), self.dtype)


Bounded = dict[str, Rounded]


def bound_errors(
    bound: Callable[..., Bounded], inputs: dict[str, Any], cotangent: Tensor | None = None
) -> dict[str, Tensor]:
    """For everything that is right, by its name in `Case.expected`, the largest error of each element.

    Args:
        bound: that of the adapter, called with the inputs, and the cotangent if there is one, as `Rounded` values.
        inputs: what the adapter is called with.
        cotangent: the gradient of the loss with respect to the answer.
    """
    dtype = dtype_of(inputs)
    working = torch.promote_types(dtype, torch.float32)

    def exact(x: Any) -> Any:
        return Rounded(x.detach().double(), torch.zeros_like(x, dtype=torch.float64), working) if is_float(x) else x

    arguments = {name: exact(x) for name, x in inputs.items()}
    if cotangent is not None:
        arguments["cotangent"] = exact(cotangent)
    found = bound(**arguments)
    return {what: _returned(x, dtype) for what, x in found.items()}


def _returned(x: Rounded, dtype: torch.dtype) -> Tensor:
    """The error of `x` once it is rounded to the dtype that is returned, where that is half precision."""
    if dtype == x.dtype:
        return x.error
    half = torch.finfo(dtype)
    return x.error + (1 + HEADROOM) * half.eps / 2 * (x.value.abs() + x.error + half.tiny)


def joined(parts: Sequence[Rounded], join: Callable[[list[Tensor]], Tensor]) -> Rounded:
    return Rounded(join([x.value for x in parts]), join([x.error for x in parts]), parts[0].dtype)

"""A student's weights on the public case beside the right ones, and where they differ most, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cs336_staff.grading.gradebook import Matrix
from cs336_staff.grading.weights import CASE, allowed, right_weights

AGREES = 0.0005  # three decimals are the same


@dataclass(frozen=True)
class Cell:
    """One weight: None is NaN or infinite; `hidden` by the mask."""

    weight: float | None
    hidden: bool

    @property
    def text(self) -> str:
        if self.weight is None:
            return "NaN"
        if 0 <= self.weight <= 1:
            return f"{self.weight:.2f}"
        short = f"{self.weight:.2g}" if 0.01 <= abs(self.weight) < 100 else f"{self.weight:.0e}"
        return short.replace("e+0", "e").replace("e+", "e")

    @property
    def shade(self) -> float:
        return min(1.0, max(0.0, self.weight or 0.0))


@dataclass(frozen=True)
class WeightsFigure:
    """Both matrices, and a sentence on their difference."""

    case: str
    yours: Sequence[Sequence[Cell]]
    right: Sequence[Sequence[Cell]]
    said: str

    @classmethod
    def of(cls, weights: Matrix) -> Self:
        """Draw nothing of the student's if there are no weights."""
        return cls(CASE, _cells(weights), _cells(right_weights()), _said(weights))


def _cells(weights: Matrix) -> list[list[Cell]]:
    return [
        [Cell(weight, not seen) for weight, seen in zip(row, mask, strict=True)]
        for row, mask in zip(weights, allowed(), strict=False)
    ]


def _said(weights: Matrix) -> str:
    if not weights:
        return "Your attention gave no usable answer in this case, so only the right weights are shown."
    if missing := sum(weight is None for row in weights for weight in row):
        are = "are" if missing > 1 else "is"
        return f"{missing} of your {sum(map(len, weights))} weights {are} NaN or infinite."
    differences = [
        (abs(yours - right), query, key, yours, right)
        for query, (row, right_row) in enumerate(zip(weights, right_weights(), strict=True))
        for key, (yours, right) in enumerate(zip(row, right_row, strict=True))
        if yours is not None and right is not None
    ]
    most, query, key, yours, right = max(differences)
    if most <= AGREES:
        return "Your weights are right: they agree with the right ones to three decimals."
    return (
        f"They differ most for query {query} and key {key}, counted from 0: your weight there is {yours:.3g}, and it "
        f"should be {right:.3g}."
    )

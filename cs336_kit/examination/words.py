"""Numbers and lists as they are read out."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor


def number(x: float | Tensor) -> str:
    """Four digits, and no -0."""
    return "0" if abs(float(x)) < 1e-7 else f"{float(x):.4g}".replace("nan", "NaN")


def numbers(row: Tensor | Sequence[float]) -> str:
    """A row of numbers: (0.5403, 0.8415)."""
    values = row.tolist() if isinstance(row, Tensor) else row
    return "(" + ", ".join(map(number, values)) + ")"


def matrix(rows: Tensor) -> str:
    return "[" + ", ".join(numbers(row) for row in rows) + "]"


def listed(things: Iterable[Any]) -> str:
    """0, 1 and 2."""
    *others, last = map(str, things)
    return f"{', '.join(others)} and {last}" if others else last

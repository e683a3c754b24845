"""A step of the report on one call, and how it puts tensors into words."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

SMALL = 8  # rows and columns of a matrix whose numbers are printed
WIDTH = 9  # columns of the terminal for a number


@dataclass
class Step:
    """A step of the report.

    Args:
        title: what it is about.
        source: whose arithmetic it is.
        facts: a line each.
        advice: what looks wrong and what to do, a line each.
        finite: whether there is neither NaN nor infinity up to here.
        numbers: what there is or was computed, by name; the first matrix of each is printed if it is small.
    """

    title: str
    source: str = ""
    facts: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    finite: bool = True
    numbers: dict[str, Tensor] = field(default_factory=dict)

    def rows(self) -> Iterator[str]:
        """The numbers as a reader works them on paper, a line for each row."""
        for name, x in self.numbers.items():
            if x.ndim < 2 or not 0 < max(x.shape[-2:]) <= SMALL or not x.numel():
                continue
            batch = x.shape[:-2]
            of = f"{name} at {[0] * len(batch)}".strip() if batch.numel() > 1 else name
            if of:
                yield f"{of}:"
            for row in x.reshape(-1, *x.shape[-2:])[0].tolist():
                yield "".join(_number(x) for x in row)


def _number(x: float) -> str:
    return f"{x:{WIDTH}.4f}" if abs(x) < 1000 else f"{x:{WIDTH}.1e}"


def span(x: Tensor) -> str:
    """The smallest and the largest finite number; before them the counts of NaN and infinity, if there are any."""
    if x.dtype == torch.bool:
        return f"{x.double().mean():.0%} True"
    finite = x[x.isfinite()]
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    bad = ~x.isfinite()
    if not bad.any():
        return bounds
    return f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first {first(bad)}; else {bounds}"


def span_and_spread(x: Tensor) -> str:
    """The same, and how far the numbers lie apart."""
    return f"{span(x)}, standard deviation {x[x.isfinite()].std(correction=0):.4g}"


def is_finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def first(found: Tensor) -> str:
    """Say where `found` is True for the first time."""
    return f"at {found.nonzero()[0].tolist()}"


def dtype_name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")

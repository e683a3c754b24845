"""A step of the report on one call, and how it puts tensors into words."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Step:
    """A step of the report.

    Args:
        title: what it is about.
        source: whose arithmetic it is.
        facts: a line each.
        advice: what looks wrong and what to do, a line each.
        finite: whether there is neither NaN nor infinity up to here.
    """

    title: str
    source: str = ""
    facts: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    finite: bool = True


def span(x: Tensor) -> str:
    """The smallest and the largest number; before them how many are none."""
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
    """Where `found` is True for the first time."""
    return f"at {found.nonzero()[0].tolist()}"


def dtype_name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")

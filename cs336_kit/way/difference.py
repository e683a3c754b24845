"""Telling how a value differs from a step: by a factor, by True and False exchanged, as another step."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cs336_kit.way.values import Value, find_layout, is_near


@dataclass(frozen=True)
class Difference:
    """The difference of a value from what should be there.

    Args:
        words: after "This": "is 0.25 times the scaled scores".
        is_simple: whether the words say all of it.
    """

    words: str
    is_simple: bool


def tell_difference(value: Tensor, right: Tensor, name: str, known: Mapping[str, Value]) -> Difference:
    """Say how a value differs from a step.

    Args:
        value: of the student's expression.
        right: the step, in the layout of the value if there is one.
        name: of the step.
        known: other things that the value may be, by name.
    """
    for other, thing in known.items():
        if other != name and find_layout(Value(value), thing) is not None:
            return Difference(f"is {other}; expected {name}", True)
    if not value.ndim and not right.ndim:
        return Difference(f"is {_number(value)}; expected {name}, {_number(right)}", True)
    if value.shape != right.shape:
        return Difference(f"has shape {tuple(value.shape)}; expected {name}, of shape {tuple(right.shape)}", False)
    if right.dtype == torch.bool:
        return _of_masks(value, right, name)
    return next(_of_numbers(value.double(), right.double(), name))


def _of_masks(value: Tensor, right: Tensor, name: str) -> Difference:
    if torch.equal(value, ~right):
        return Difference(f"is {name} with True and False exchanged", True)
    more, fewer = int((value & ~right).sum()), int((right & ~value).sum())
    parts = [f"True in {_places(more)} where {name} is False"] * bool(more)
    parts += [f"False in {_places(fewer)} where {name} is True"] * bool(fewer)
    return Difference(f"is {' and '.join(parts)}", True)


def _of_numbers(value: Tensor, right: Tensor, name: str) -> Iterator[Difference]:
    count = value.numel()
    if wrong := int((value.isnan() & ~right.isnan()).sum()):
        yield Difference(f"is NaN in {wrong} of {count} places", False)
    hidden, should = value == -math.inf, right == -math.inf
    seen = ~(hidden | should)
    if not torch.equal(hidden, should) and should.any() and is_near(value[seen], right[seen]):
        low = value[should & ~hidden]
        kept = f"{_number(low[0])}" if low.numel() and is_near(low, low[:1].expand_as(low)) else "other numbers"
        if torch.equal(hidden, ~should):
            yield Difference("is −inf where it should not be, and is not where it should", True)
        elif torch.equal(hidden.sum(), should.sum()):
            yield Difference("is −inf in other places than it should be", True)
        elif int(hidden.sum()) == 0:
            yield Difference(f"has {kept} where −inf is expected, and is right elsewhere", True)
        else:
            yield Difference(f"is −inf in {_places(int(hidden.sum()))}; expected in {int(should.sum())}", True)
    if not bool(seen.any()) or not value[seen].isfinite().all():
        yield Difference(f"is not {name}", False)
    x, y = value[seen], right[seen]
    large = y.abs() > 1e-6 * y.abs().max()
    if large.any():
        factors = x[large] / y[large]
        factor = factors.median()
        is_rest_small = bool((x[~large].abs() <= 1e-6 * x.abs().max()).all())
        if (
            is_rest_small
            and is_near(factors, factor.expand_as(factors))
            and abs(float(factor) - 1) > 1e-4
            and factor != 0
        ):
            words = "is the negative of" if is_near(factor, -torch.ones_like(factor)) else f"is {_number(factor)} times"
            yield Difference(f"{words} {name}", True)
    summands = x - y
    if is_near(summands, summands.median().expand_as(summands)) and summands.abs().max() > 1e-6:
        yield Difference(f"is {name} plus {_number(summands.median())}", True)
    if is_near(1 / x, y):
        yield Difference(f"is 1 divided by {name}", True)
    if is_near(x.sort().values, y.sort().values):
        yield Difference(f"holds the numbers of {name} in other places", True)
    wrong = (value - right).abs() > 1e-4 * y.abs().max()
    wrong &= seen
    places = int(wrong.sum())
    if 0 < places <= count // 2:
        for axis in range(value.ndim):
            others = [other for other in range(value.ndim) if other != axis]
            at = (wrong.any(others) if others else wrong).nonzero().flatten().tolist()
            if len(at) == 1 and value.shape[axis] > 2:
                yield Difference(f"is right except at index {at[0]} of axis {axis}", True)
    yield Difference(f"is not {name}: {places} of {count} numbers differ", False)


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _number(x: Tensor) -> str:
    return f"{float(x) + 0.0:.4g}".replace("-", "−")

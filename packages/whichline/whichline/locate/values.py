"""Values, and whether one equals a checkpoint in some layout."""

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whichline.engine.compare import same

CLOSE = 1e-4  # of the largest number: two ways to compute the same in float32 may differ so much
HALF = (torch.float16, torch.bfloat16)
ROUNDINGS = 4  # eps of half precision: two ways to compute the same in it may differ so much
HIDDEN = -1e6  # this number and lower ones stand for −inf
LOWEST = -1e30  # only masks hold numbers as low as this

Axes = tuple[int, ...] | None  # the axes of a checkpoint in the order in which a value has them; None: as they are


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, or a number as a tensor without axes; in float64, unless it holds integers or truth values."""

    tensor: Tensor

    @property
    def within(self) -> float:
        """What another way to compute it may make of it, as a share of the largest number."""
        return max(CLOSE, ROUNDINGS * torch.finfo(self.tensor.dtype).eps) if self.tensor.dtype in HALF else CLOSE

    @cached_property
    def digest(self) -> tuple[int, bool, float]:
        """Properties that no layout changes: how many numbers, whether they are truth values, their absolute sum."""
        x = self.tensor
        if x.dtype == torch.bool:
            return x.numel(), True, float(x.sum())
        numbers = (x.float() if x.dtype in HALF else x).numpy(force=True)  # in half of torch's time
        return x.numel(), False, float(np.abs(numbers, where=numbers > HIDDEN, out=np.zeros(numbers.shape)).sum())


def is_uniform(x: Tensor) -> bool:
    """Tell whether a tensor holds one number everywhere; one number alone does not count."""
    return x.numel() > 1 and bool((x == x.flatten()[0]).all())


def is_mask(x: Tensor) -> bool:
    """Tell whether a tensor holds truth values, or two numbers only, such as 0 and −inf."""
    if x.dtype == torch.bool or x.is_complex() or not x.numel():
        return x.dtype == torch.bool
    return not is_uniform(x) and bool(((x == x.min()) | (x == x.max())).all())


def take_one_mask(x: Tensor) -> Tensor | None:
    """Take the mask whose repetition along the first axis makes a tensor, as `expand` does; None if there is none."""
    if x.dtype != torch.bool or x.ndim < 3 or is_uniform(x):
        return None
    return x[0] if torch.equal(x, x[:1].expand_as(x)) else None


def as_value(x: Any) -> Value:
    """Make a value of what a probe recorded; None, for an object, becomes NaN, which equals nothing."""
    if isinstance(x, bool):
        return Value(torch.tensor(x))
    x = x if isinstance(x, Tensor) else torch.tensor(math.nan if x is None else float(x), dtype=torch.float64)
    return Value(x.detach())


def identify(x: Any) -> Hashable:
    """Return a key that is equal for values of the same shape, dtype and numbers."""
    if not isinstance(x, Tensor):
        return type(x), x
    numbers = x.detach().view(torch.int16) if x.dtype == torch.bfloat16 else x.detach().resolve_conj().resolve_neg()
    return x.shape, x.dtype, hash(numbers.numpy().tobytes())


def is_near(x: Tensor, right: Tensor, exactly: bool = False, within: float = CLOSE) -> bool:
    """Tell whether two tensors of one shape hold the same numbers, but for rounding.

    Where `right` is −inf, or the lowest number, any very low number will do, unless `exactly` is set. NaN equals
    nothing.
    """
    if x.dtype == torch.bool or right.dtype == torch.bool:
        return x.dtype == right.dtype and torch.equal(x, right)
    hidden = right < LOWEST
    if hidden.any() or not right.isfinite().all():
        exactly = exactly and not right[hidden].isfinite().any()
        if (~right.isfinite() & ~hidden).any() or not (x[hidden] <= (-math.inf if exactly else HIDDEN)).all():
            return False
        x, right = x[~hidden], right[~hidden]
    return bool(same(x, right, within).all())


def is_equal(one: Any, other: Any) -> bool:
    """Tell whether two values are the same to the last digit, NaN and all."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(x, other[key]) for key, x in one.items())
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other or one == other
    if one.shape != other.shape:
        return False
    is_same = one.dtype == other.dtype and torch.equal(one, other)  # in a tenth of the time
    return is_same or bool(same(one, other, within=0.0).all())


def is_one(value: Any, other: Any) -> bool:
    """Tell whether two values are the same object, or tensors of the same memory."""
    if value is other or not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return value is other
    return value.shape == other.shape and value.dtype == other.dtype and _find_memory(value) == _find_memory(other) != 0


def share_numbers(x: Any, other: Any) -> bool:
    """Tell whether two tensors share their numbers, as a view does with what it is of."""
    with suppress(RuntimeError, NotImplementedError):  # some tensors have no memory of their own, as inside vmap
        are_tensors = isinstance(x, Tensor) and isinstance(other, Tensor)
        return are_tensors and x.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return False


def _find_memory(x: Tensor) -> int:
    return x.data_ptr() if x.layout is torch.strided and not x.requires_grad else 0


def may_be(x: Value, right: Value) -> bool:
    """Tell quickly whether two values may hold the same numbers."""
    (count, truth, size), (count_right, truth_right, size_right) = x.digest, right.digest
    if (count, truth) != (count_right, truth_right):
        return False
    return abs(size - size_right) <= 2 * right.within * (abs(size_right) + 1e-9)


def lay_out(right: Tensor, shape: Sequence[int]) -> Iterator[tuple[Axes, Tensor]]:
    """Yield the layouts of a checkpoint in a shape: axes in any order, leading axes merged, axes of size 1 anywhere."""
    if right.numel() != math.prod(shape):
        return
    if tuple(right.shape) == tuple(shape):
        yield tuple(range(right.ndim)), right
    long = [axis for axis, size in enumerate(right.shape) if size != 1]
    want = [size for size in shape if size != 1]
    if len(long) == len(want) and sorted(right.shape[axis] for axis in long) != sorted(want):
        return
    for order in itertools.permutations(long):
        fits = _becomes([right.shape[axis] for axis in order], want) and _is_plain(right, order)
        if fits and not (list(order) == long and tuple(right.shape) == tuple(shape)):
            ones = [axis for axis, size in enumerate(right.shape) if size == 1]
            yield (*ones, *order), right.permute((*ones, *order)).reshape(tuple(shape))


def _becomes(sizes: list[int], want: list[int]) -> bool:
    """Tell whether these axes, all longer than 1, are the wanted ones, or become them if leading axes are merged."""
    merged = len(sizes) > len(want) >= 2 and [math.prod(sizes[: -len(want) + 1]), *sizes[-len(want) + 1 :]] == want
    return sizes == want or merged


def _is_plain(right: Tensor, order: Sequence[int]) -> bool:
    """Tell whether axes of equal size keep their order, as otherwise they match by chance.

    The last two may be exchanged, but not of a mask: that is another mask.
    """
    pairs = itertools.combinations(order, 2)
    exchanged = [other for one, other in pairs if right.shape[one] == right.shape[other] and one > other]
    return not exchanged or (min(exchanged) >= right.ndim - 2 and not is_mask(right))


def find_layout(x: Value, right: Value, exactly: bool = False) -> Axes:
    """Find the layout in which a value equals a checkpoint; None if it does not."""
    if may_be(x, right):
        for axes, laid in lay_out(right.tensor, x.tensor.shape):
            if is_near(x.tensor, laid, exactly, right.within):
                return axes
    return None


def relay(right: Tensor, axes: tuple[int, ...], shape: Sequence[int]) -> Tensor | None:
    """Lay a checkpoint out as in another test case, which may have more leading axes; None if it does not fit."""
    more = right.ndim - len(axes)
    if more > 0:
        axes = (*range(more), *(axis + more for axis in axes))
    elif more < 0:
        if axes[:-more] != tuple(range(-more)):
            return None
        axes = tuple(axis + more for axis in axes[-more:])
    laid = right.permute(axes)
    fits = _becomes([size for size in laid.shape if size != 1], [size for size in shape if size != 1])
    return laid.reshape(tuple(shape)) if fits else None

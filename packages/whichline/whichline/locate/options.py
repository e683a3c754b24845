"""Options: the checkpoints that may replace an expression, in the layout and dtype that the code has there."""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import compress, islice
from typing import Any

import torch
from torch import Tensor

from whichline.locate.checkpoints import Step, list_series
from whichline.locate.probe import Expression
from whichline.locate.reference import list_counterparts
from whichline.locate.trace import Trace
from whichline.locate.values import HALF, Axes, as_value, find_layout, identify, is_mask, is_near, lay_out, relay

LOW = -1e9  # what students write for −inf
MOST_CALLS = 4  # events of an expression for which each may have its own checkpoint
MOST_LAYOUTS = 4  # of one checkpoint
MOST_OTHERS = 8  # checkpoints of another shape
NEXT = 1 / 8  # from a fraction to the next number that is tried


@dataclass(frozen=True)
class Option:
    """Checkpoints that replace the values of an expression."""

    names: tuple[str, ...]  # the n-th event gets the n-th of these; events after the last one get the last one
    axes: Axes = None  # their layout; None: as they are
    is_sliced: bool = False  # whether the n-th event gets the n-th slice of one checkpoint
    # whether the n-th event gets the n-th checkpoint of a series that begins here; a loop may treat the first block
    # apart, so a series may begin at the second one
    is_series: bool = False
    is_low: bool = False  # whether a very low number replaces −inf
    is_repeated: bool = False  # whether a mask is repeated, as one must be that is an index
    is_table: bool = False  # whether it begins a larger table, made of numbers alone, of which a call uses a part
    shift: int = 0  # how many numbers further on, to see whether another number does as well
    adapter: str = ""  # whose reference computes them; "" for the adapter that the test calls
    # two counterparts, such as keys and values; whatever the expression is for the first one, in another test the
    # rotated keys, is replaced by the same for the second one
    kinds: tuple[str, str] | None = None

    def __call__(self, call: Any, time: int, value: Any) -> Any:
        """Return the replacement for the n-th value; None keeps the value."""
        known = call.inner.get(self.adapter) if self.adapter else call.known
        if known is None:
            call.lacks.add(self.adapter)  # a constructor may run before the call
            return None
        return choose_value(self, known.steps.taken, time, value)

    @property
    def as_is(self) -> "Option":
        """The same option, with −inf itself."""
        return replace(self, is_low=False)

    def is_like(self, other: "Option") -> bool:
        """Tell whether two options are the same but for counterparts: the scaled keys, the scaled values."""
        patterns = [[find_counterparts().sub("*", name) for name in option.names] for option in (self, other)]
        is_alike = patterns[0] == patterns[1] and self.names != other.names
        return is_alike and replace(self, names=(), kinds=None) == replace(other, names=(), kinds=None)


def find_what_is(trace: Trace, place: Expression) -> Option | None:
    """Find the one checkpoint that an expression equals in every event, or the series that it goes through."""
    match = trace.match(place)
    if not match or match.names[0] not in trace.steps:
        return None
    if len(set(match.names)) == 1 and not trace.steps[match.names[0]].series:
        return Option(match.names[:1], match.axes[0])
    for series in dict.fromkeys(trace.steps[name].series for name in match.names if name in trace.steps):
        for first in list_series(trace.steps, series)[:2]:
            names = list_turns(trace.steps, first)
            if _are_in_turn(trace.value(place), [trace.steps[name] for name in names]):
                return Option(tuple(names[:1]), match.axes[0], is_series=True)
    return None


def _are_in_turn(values: Sequence[Any], steps: Sequence[Step]) -> bool:
    """Tell whether the n-th value equals the n-th checkpoint."""
    pairs = zip(values, steps, strict=False)
    return len(values) == len(steps) and all(find_layout(as_value(x), step.value) is not None for x, step in pairs)


def list_options(trace: Trace, place: Expression) -> list[Option]:
    """List the checkpoints that can replace an expression, those first that the reference computes next."""
    value = trace.value(place)[0]
    if value is None:
        return []
    steps = _order_steps(trace, place)
    if trace.is_number(place) and trace.is_first_divergence(place) and not trace.list_operands(place):
        return [Option((step.name,), ()) for step in steps if step.name.strip("`") in trace.arguments]
    if not isinstance(value, Tensor):
        times = len(trace.value(place))
        tensors = [step.value.tensor for step in steps]
        are_numbers = [x.numel() == times > 1 and x.dtype != torch.bool for x in tensors]
        each_time = [Option((step.name,), is_sliced=True) for step in compress(steps, are_numbers)]
        numbers = [step for step in steps if not step.value.tensor.ndim and not step.name.startswith("`")]
        if type(value) is int and _is_among_whole_numbers(trace, place):
            numbers = [step for step in numbers if float(step.value.tensor).is_integer()]
        firsts = [step for step in numbers if not step.series or list_series(trace.steps, step.series)[0] == step.name]
        return [Option((step.name,), (), is_series=bool(step.series) and times > 1) for step in firsts] + each_time
    truths = [step for step in steps if step.value.tensor.dtype == torch.bool]
    others = [step for step in steps if step.value.tensor.dtype != torch.bool]
    steps = truths if value.dtype == torch.bool else [*truths * _are_flags(value), *others]
    options = list(dict.fromkeys(_list_layouts(trace, place, steps)))
    if trace.is_numeric(place):
        options = [replace(each, is_table=each.axes is not None) for each in options]
    is_low = value.is_floating_point() and bool((value <= -1e4).any() and value.isfinite().all())
    low = {step.name for step in steps if is_low and bool((step.value.tensor == -math.inf).any())}
    return [each for option in options for each in (option, *[replace(option, is_low=True)] * (option.names[0] in low))]


def _are_flags(x: Tensor) -> bool:
    """Tell whether a tensor holds 0 and 1 in place of False and True."""
    return is_mask(x) and [float(each) for each in x.aminmax()] == [0, 1]


def _is_among_whole_numbers(trace: Trace, place: Expression) -> bool:
    """Tell whether a number is an index, or goes into a tensor of whole numbers, such as positions."""
    around = [each for each in trace.places if place in trace.list_operands(each)]
    values = [trace.values[each][0] for each in around]
    is_index = any(isinstance(each.node, ast.Subscript) and each.node.value is not place.node for each in around)
    return is_index or any(isinstance(x, Tensor) and not x.is_floating_point() for x in values)


def _order_steps(trace: Trace, place: Expression) -> list[Step]:
    """Order the checkpoints: first those after the last one among the operands, the nearest first."""
    matches = [trace.match(each) for each in trace.list_operands(place)]
    names = [name for match in matches if match for name in match.names if name in trace.steps]
    firsts = [match.names[0] for match in matches if match]  # of a series, the first one counts
    reached = [trace.steps[name].order for name in names if not trace.steps[name].series or name in firsts]
    here = max(reached, default=-1)
    return sorted(trace.steps.values(), key=lambda step: (step.order < here, abs(step.order - here)))


def _list_layouts(trace: Trace, place: Expression, steps: Sequence[Step]) -> Iterator[Option]:
    values = trace.value(place)
    value, times = values[0], len(values)
    yield from _list_in_series(trace, values, steps)
    steps = [step for step in steps if not step.series]
    if times > 1 and all(isinstance(each, Tensor) for each in values):
        if times <= MOST_CALLS:
            yield from _mend_one(trace, values, steps)
        for step in steps:
            for axes, _ in list(lay_out(step.value.tensor, (times, *value.shape)))[:MOST_LAYOUTS]:
                yield Option((step.name,), axes, is_sliced=True)
    here = {found[0] for each in values if (found := trace.find(each)) and found[0] in trace.steps}
    for step in steps:
        for axes, laid in list(lay_out(step.value.tensor, value.shape))[:MOST_LAYOUTS]:
            if here <= {step.name} if times > 1 else not is_near(value, laid, exactly=True):
                yield Option((step.name,), axes)
            if 1 < times <= MOST_CALLS:
                yield from (Option(family, axes) for family in _find_family(trace.steps, step, times))
    if times == 1 or (value.ndim and len({*map(identify, values)}) == 1):  # otherwise a loop slices it
        others = (step for step in steps if step.value.tensor.ndim and not any(lay_out(step.value.tensor, value.shape)))
        yield from (Option((step.name,)) for step in islice(others, MOST_OTHERS))  # the nearest
        answer = [step for step in steps if step.name == list(trace.steps)[-1]]
        yield from (Option((step.name,)) for step in answer if trace.is_returned(place))


def _list_in_series(trace: Trace, values: Sequence[Tensor], steps: Sequence[Step]) -> Iterator[Option]:
    """List the series that have one checkpoint for each event of the expression."""
    latest: dict[str, int] = {}
    firsts = set[str]()
    for step in trace.steps.values():
        if step.series and step.turns[0] > latest.get(step.series, 0):
            latest[step.series] = step.turns[0]
            firsts.add(step.name)
    for step in steps:
        if step.name not in firsts or len(list_turns(trace.steps, step.name)) != len(values):
            continue
        layouts = [axes for axes, _ in lay_out(step.value.tensor, values[0].shape)][:MOST_LAYOUTS]
        is_put = len(values) > 1 and isinstance(step.tensor, Tensor)  # a number cannot replace a tensor
        yield from (Option((step.name,), axes, is_series=True) for axes in layouts or [None] * is_put)


def _mend_one(trace: Trace, values: Sequence[Tensor], steps: Sequence[Step]) -> Iterator[Option]:
    """List checkpoints for the one event in which an expression is wrong; its other events keep their values."""
    names = [found[0] if (found := trace.find(value)) else "" for value in values]
    if len(wrong := [i for i, name in enumerate(names) if name not in trace.steps]) == 1:
        for step in steps:
            if step.value.tensor.shape == values[wrong[0]].shape:
                mended = tuple(step.name if i in wrong else name for i, name in enumerate(names))
                yield Option(mended, tuple(range(values[0].ndim)))


Options = Mapping[Expression, Option]


@dataclass
class Failed:
    """Numbers with which a test failed: none of them need be tried again under another name."""

    trace: Trace  # of the test
    _numbers: set[object] = field(default_factory=set)  # each with its places
    _whole: set[Expression] = field(default_factory=set)  # places where the code refuses a fraction

    def has(self, change: Options) -> bool:
        place, numbers = next(iter(change)), self._read(change)
        is_same = bool(numbers) and numbers == (*self.trace.value(place),)
        is_refused = place in self._whole and self._has_fraction(place, numbers)
        return is_same or is_refused or (*change, numbers) in self._numbers

    def add(self, change: Options, raised: bool) -> None:
        """Note a change with which the test fails, and whether the code cannot use the numbers."""
        place, numbers = next(iter(change)), self._read(change)
        if numbers:
            self._numbers.add((*change, numbers))
        if raised and self._has_fraction(place, numbers):
            self._whole.add(place)

    def _has_fraction(self, place: Expression, numbers: Sequence[Any]) -> bool:
        pairs = zip(numbers, self.trace.value(place), strict=False)
        return any(isinstance(number, float) and isinstance(value, int) for number, value in pairs)

    def _read(self, change: Options) -> tuple[Any, ...]:
        """Return the numbers that a change puts in its first place, one for each event; () if they are tensors."""
        place, option = next(iter(change.items()))
        values = self.trace.value(place) if self.trace.is_number(place) else []
        return tuple(choose_value(option, self.trace.steps, time, value) for time, value in enumerate(values))


@cache
def find_counterparts() -> re.Pattern[str]:
    """Return a pattern for the words in names of checkpoints that have counterparts, as "keys" and "values"."""
    return re.compile("|".join(map(re.escape, list_counterparts())) or "(?!)")


def list_alike(steps: Mapping[str, Step], name: str) -> list[str]:
    """List the checkpoints whose names differ from this one only in counterparts."""
    pattern = find_counterparts().sub("*", name)
    return [each for each in steps if find_counterparts().sub("*", each) == pattern]


def _find_family(steps: Mapping[str, Step], first: Step, count: int) -> Iterator[tuple[str, ...]]:
    """Yield the like checkpoints of the first `count` counterparts, if this one is the first of them."""
    alike = list_alike(steps, first.name) if find_counterparts().search(first.name) else []
    is_first = len(alike) >= count and alike[0] == first.name
    if is_first and steps[alike[count - 1]].value.tensor.ndim == first.value.tensor.ndim:
        yield tuple(alike[:count])


def list_turns(steps: Mapping[str, Step], first: str) -> list[str]:
    """List the checkpoints of a series in order, from the turn of the given one on."""
    if first not in steps:
        return []
    step = steps[first]
    return [name for name in list_series(steps, step.series) if steps[name].turns[0] >= step.turns[0]]


def list_shifted(change: Options) -> list[Options]:
    """List the same change with the numbers next to the first one: if they do as well, that one is right by chance."""
    place, option = next(iter(change.items()))
    return [{**change, place: replace(option, shift=shift)} for shift in (1, -1)]


def name_at(option: Option, steps: Mapping[str, Step], time: int) -> str:
    """Return the name of the checkpoint that replaces the n-th value, or ""."""
    if option.is_series:
        names = list_turns(steps, option.names[0])
        return names[time] if time < len(names) else ""
    return option.names[min(time, len(option.names) - 1)]


def choose_value(option: Option, steps: Mapping[str, Step], time: int, value: Any) -> Any:
    """Compute the replacement for the n-th value of an expression; None if the checkpoint does not fit.

    The replacement is a copy with the checkpoint's graph, in the dtype of the value that it replaces. Half precision
    becomes float32, since the student's code may round too early.
    """
    step = steps.get(name_at(option, steps, time))
    if option.kinds:
        step, axes = _find_sibling(steps, value, *option.kinds)
        option = replace(option, axes=axes)
    if step is None:
        return None
    if not isinstance(value, Tensor):
        numbers = step.value.tensor.flatten()
        if option.is_sliced and time >= len(numbers):
            return None
        number = float(numbers[time if option.is_sliced else 0])
        number += option.shift * (1 if number.is_integer() else NEXT)
        return int(number) if isinstance(value, int) and number.is_integer() else number
    new = step.graft()
    if not isinstance(new, Tensor):
        return None
    with suppress(RuntimeError, ValueError, IndexError):  # the layout is of another test case
        shape = (*value.shape, 2) if value.is_complex() else value.shape
        new = _slice(new, option, time, shape) if option.is_sliced else _lay(new, option.axes, shape)
        if new is None:
            return None
        new = new.expand(shape) if option.is_repeated else new
        new = _begin_with(new, value) if option.is_table and value.ndim == new.ndim else new
        if option.is_low:
            new = torch.where(new == -math.inf, LOW, new)
        if value.is_complex():
            return torch.view_as_complex(new.contiguous()).to(value.dtype, copy=True)
        dtype = torch.float32 if value.dtype in HALF and new.is_floating_point() else value.dtype
        return new.to(dtype, copy=True)
    return None


def _find_sibling(steps: Mapping[str, Step], value: Any, here: str, there: str) -> tuple[Step | None, Axes]:
    """Find the checkpoint that a value equals for one counterpart, and return the same for the other one."""
    for step in steps.values():
        if here in step.name and (axes := find_layout(as_value(value), step.value)) is not None:
            return steps.get(step.name.replace(here, there)), axes
    return None, None


def _lay(step: Tensor, axes: Axes, shape: Sequence[int]) -> Tensor | None:
    if axes is None or step.numel() != math.prod(shape):
        return step
    laid = relay(step, axes, shape)
    return laid if laid is not None else next((each for _, each in lay_out(step, shape)), None)


def _begin_with(new: Tensor, value: Tensor) -> Tensor:
    """Put a checkpoint at the beginning of a larger table; return it as it is if the table is not larger."""
    pairs = [*zip(new.shape, value.shape, strict=True)]
    if value.is_complex() or new.shape == value.shape or any(one > other for one, other in pairs):
        return new
    table = value.detach().to(new.dtype, copy=True)
    table[tuple(slice(one) for one, _ in pairs)] = new
    return table


def _slice(step: Tensor, option: Option, time: int, shape: Sequence[int]) -> Tensor | None:
    times = step.numel() // max(math.prod(shape), 1)
    laid = _lay(step, option.axes, (times, *shape))
    return laid[time] if laid is not None and time < times else None

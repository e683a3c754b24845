"""Saying how a value differs from a checkpoint: by a factor, by True and False swapped, as another checkpoint."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from whichline.locate.known import Match
from whichline.locate.options import Option, Options, choose_value, name_at
from whichline.locate.probe import Expression
from whichline.locate.resemblance import are_in_zeros, describe, describe_axes, describe_mask, describe_order
from whichline.locate.trace import Trace
from whichline.locate.values import Value, as_value, find_layout, is_near, is_uniform

COUNT = 1_000_000  # smaller whole numbers are written out
OTHER_PLACES = "the same numbers in other places"
OF_SHAPE = ", of shape "
FEW = 3  # two tensors may share so few different numbers, such as 0 and 1, by chance


@dataclass(frozen=True)
class Difference:
    """How a value differs from its checkpoint, in words."""

    words: str  # a sentence: "Expected the scaled scores; found 0.25 times that."
    is_simple: bool  # whether the words say all of it
    is_extra: bool = False  # whether they are about operands, and not about numbers
    is_needless: bool = False  # whether they say that the expression should not be there at all
    instead: str = ""  # the words to use if it is needed after all


def compare(trace: Trace, change: Options) -> Difference:
    """Describe how the first expression of a change differs from its replacement, in the first event that does."""
    (place, option), *others = change.items()
    match = trace.match(place)
    last = trace.value(place)[-1]
    is_by_chance = not place.is_read and isinstance(last, Tensor) and is_uniform(last)
    if match and not is_by_chance and (words := _compare_steps(trace, match, change)):
        return Difference(words, True, is_extra=bool(others))
    values = trace.value(place)
    time = _find_different(trace, place, option)
    step = trace.steps.get(name_at(option, trace.steps, time))
    if step is None:
        return Difference("This is not the right value.", False)
    right = choose_value(option.as_is, trace.steps, time, values[time])
    if option.is_sliced and isinstance(right, float | int):
        right = as_value(right).tensor
    elif not isinstance(right, Tensor) or isinstance(values[time], float | int):
        right = step.value.tensor
    known = {name: each for name, each in trace.known.values.items() if each is not step.value}
    others = partial(describe, trace, place, time)
    difference = _describe_difference(as_value(values[time]).tensor, right.detach(), step.name, known, others)
    if not difference.is_simple and _is_operand(trace, place, time, right):
        words = f"Expected {step.name}, unchanged: this step should not be here."
        return Difference(words, True, is_extra=True, is_needless=True, instead=difference.words)
    return difference


def _compare_steps(trace: Trace, match: Match, change: Options) -> str:
    """Say which checkpoint an expression equals, and which one belongs there; "" if they are the same."""
    (place, option), *others = change.items()
    swapped = trace.match(others[0][0]) if others else None
    if swapped and swapped.names[0] == option.names[0]:
        return f"Expected {option.names[0]}; found {match.names[0]}: the two are swapped."
    time = _find_different(trace, place, option) if option.is_series else find_other(trace, place, option)
    wanted, here = name_at(option, trace.steps, time), match.names[min(time, len(match.names) - 1)]
    return f"Expected {wanted}; found {here}." if wanted != here and here in trace.known.values else ""


def _find_different(trace: Trace, place: Expression, option: Option) -> int:
    """Find the first event whose value differs from its replacement in a series, or else equals no checkpoint."""
    values = trace.value(place)
    for time, value in enumerate(values if option.is_sliced or option.is_series else ()):
        right = choose_value(option.as_is, trace.steps, time, value)
        value, right = (as_value(x).tensor if isinstance(x, int | float) else x for x in (value, right))
        if not isinstance(value, Tensor) or not isinstance(right, Tensor) or value.shape != right.shape:
            break
        if not is_near(value, right.detach()):
            return time
    return min(trace.find_first_wrong(place), len(values) - 1)


def _is_operand(trace: Trace, place: Expression, time: int, right: Tensor) -> bool:
    """Tell whether the right value of an expression is one of its operands."""
    operands = map(trace.value, trace.list_operands(place))
    values = (each[min(time, len(each) - 1)] for each in operands)
    tensors = (x for x in values if isinstance(x, Tensor) and x.ndim and x.shape == right.shape)
    return any(is_near(x, right.detach()) for x in tensors)


def find_other(trace: Trace, place: Expression, option: Option) -> int:
    """Find the first event in which an expression equals another checkpoint than its replacement."""
    match = trace.match(place)
    pairs = zip(match.names if match else (), option.names, strict=False)
    return next((time for time, (name, other) in enumerate(pairs) if name != other), 0)


def _describe_difference(
    value: Tensor, right: Tensor, name: str, known: Mapping[str, Value], others: Callable[..., Iterator[str]]
) -> Difference:
    """Say what was expected, and what was found: another known value, or else what one of `others` says.

    The checkpoint is in the layout of the value, if it fits.
    """
    if value.shape != right.shape and find_layout(Value(value), Value(right)) is not None:
        shapes = f"of shape {tuple(right.shape)}; found the same numbers in shape {tuple(value.shape)}"
        return Difference(f"Expected {name}, {shapes}.", True)
    is_constant = is_uniform(value)  # if it equals a checkpoint, then by chance
    for other, thing in known.items():
        if other != name and not is_constant and find_layout(Value(value), thing) is not None:
            return Difference(f"Expected {name}; found {other}.", True)
    if not value.ndim and not right.ndim:
        return Difference("Expected {}, {}; found {}.".format(name, *_format_apart(right, value)), True)
    if value.shape != right.shape:
        found = describe_axes(tuple(value.shape), tuple(right.shape)) or f"shape {tuple(value.shape)}"
        return Difference(f"Expected {name}{OF_SHAPE}{tuple(right.shape)}; found {found}.", False)
    if is_constant and value.dtype != torch.bool and value.shape == right.shape:
        return Difference(f"Expected {name}; found {format_number(value.flatten()[0])} everywhere.", False)
    if right.dtype == torch.bool:
        found, is_simple = _describe_masks(value, right), True
    else:
        found, is_simple = _describe_numbers(value.double(), right.double(), known)
        found = next((words for words in others(value, right, known) if not is_simple and words), found)
    return Difference(f"Expected {name}; found {found}.", is_simple)


def _describe_masks(value: Tensor, right: Tensor) -> str:
    if torch.equal(value, ~right):
        return "True and False swapped"
    if words := describe_mask(value, right):
        return words
    more, fewer = int((value & ~right).sum()), int((right & ~value).sum())
    parts = [f"True in {_count_places(more)} where False belongs"] * bool(more)
    parts += [f"False in {_count_places(fewer)} where True belongs"] * bool(fewer)
    return " and ".join(parts)


def _describe_numbers(value: Tensor, right: Tensor, known: Mapping[str, Value]) -> tuple[str, bool]:
    """Say what was found, and return whether that is the whole difference."""
    if wrong := int((value.isnan() & ~right.isnan()).sum()):
        is_all = is_near(value[~value.isnan()], right[~value.isnan()])
        where = ", in rows that should be 0" * are_in_zeros(value.isnan(), right)
        return f"NaN in {wrong} of {_count_places(value.numel())}{where}{'; the rest is right' * is_all}", is_all
    hidden, should = value == -math.inf, right == -math.inf
    seen = ~(hidden | should)
    masked = "" if torch.equal(hidden, should) else _describe_hidden(value, hidden, should)
    if not bool(seen.any()) or not value[seen].isfinite().all():
        return masked or "other numbers", bool(masked and not seen.any())
    if one := describe_mask(value, right):
        return one, True
    if masked and is_near(value[seen], right[seen]):
        return f"{masked}; the rest is right", True
    if elementary := next(_describe_elementary(value[seen], right[seen]), ""):
        elementary = (elementary == OTHER_PLACES and describe_order(value, right, known)) or elementary
        return (f"{elementary}, and {masked}", False) if masked else (elementary, True)
    wrong_places = seen & ((value - right).abs() > 1e-4 * right[seen].abs().max())
    if not masked and (one := _describe_index(wrong_places)):
        return one, True
    return f"wrong numbers in {int(wrong_places.sum())} of {_count_places(value.numel())}", False


def _describe_hidden(value: Tensor, hidden: Tensor, should: Tensor) -> str:
    """Say where a value is −inf, and where it should be."""
    if torch.equal(hidden, ~should) and hidden.any() and should.any():
        return "−inf where it does not belong, and not where it does"
    if torch.equal(hidden.sum(), should.sum()):
        return "−inf in other places"
    if hidden.any():
        return f"−inf in {_count_places(int(hidden.sum()))} instead of {int(should.sum())}"
    low = value[should]
    kept = format_number(low[0]) if is_near(low, low[:1].expand_as(low)) else "other numbers"
    return f"{kept} where −inf belongs"


def _describe_elementary(x: Tensor, y: Tensor) -> Iterator[str]:
    """Say how finite numbers differ, if it is a factor, a summand, a reciprocal, or their order."""
    large = y.abs() > 1e-6 * y.abs().max()
    if large.any():
        factors = x[large] / y[large]
        factor = factors.median()
        is_rest_small = bool((x[~large].abs() <= 1e-6 * x.abs().max()).all())
        if is_rest_small and is_near(factors, factor.expand_as(factors)) and abs(factor - 1) > 1e-4 and factor != 0:
            is_negative = is_near(factor, -torch.ones_like(factor))
            yield "its negative" if is_negative else f"{format_number(factor)} times that value"
    summands = x - y
    if is_near(summands, summands.median().expand_as(summands)) and summands.abs().max() > 1e-6:
        yield f"that value {'plus' if summands.median() > 0 else 'minus'} {format_number(summands.median().abs())}"
    if is_near(1 / x, y):
        yield "its reciprocal"
    if len(y.unique()) > FEW and is_near(x.sort().values, y.sort().values):
        yield OTHER_PLACES


def _describe_index(wrong: Tensor) -> str:
    """Say at which index of an axis all wrong numbers are; "" if there is none."""
    for axis in range(wrong.ndim):
        others = [other for other in range(wrong.ndim) if other != axis]
        at = (wrong.any(others) if others else wrong).nonzero().flatten().tolist()
        if len(at) == 1 and wrong.shape[axis] > 2:
            return f"wrong numbers only at index {at[0]} of axis {axis}"
    return ""


def _count_places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def format_number(x: Tensor, digits: int = 4) -> str:
    number = float(x) + 0.0
    is_count = number.is_integer() and abs(number) < COUNT
    return f"{int(number) if is_count else number:{'' if is_count else f'.{digits}g'}}".replace("-", "−")


def _format_apart(one: Tensor, other: Tensor) -> tuple[str, str]:
    """Write two numbers with as many digits as show that they differ."""
    pairs = ((format_number(one, digits), format_number(other, digits)) for digits in range(4, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (format_number(one), format_number(other)))

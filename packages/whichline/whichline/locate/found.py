"""What replacements do, the proved ones, and which of several explain the most."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from whichline.engine.compare import WrongAnswer
from whichline.locate.difference import Difference, compare
from whichline.locate.options import Option, Options, list_options
from whichline.locate.probe import Expression
from whichline.locate.resemblance import SUMS
from whichline.locate.trace import Trace
from whichline.locate.values import is_equal


@dataclass(frozen=True)
class Found:
    """A replacement that is proved."""

    patch: Options  # the first expression, and others that are wrong for the same reason, with their options
    trace: Trace  # a run without it
    difference: Difference  # between the first expression and its checkpoint
    explains: tuple[str, ...]  # the failing tests that pass with it, and with what was found before it
    is_clean: bool = True  # whether everything computed later is right, too
    shown: tuple[Expression, ...] = ()  # the expressions to show, if not the first one
    origin: Expression | None = None  # the one to show, if the first one only takes rows of it or rewrites it
    use: str = ""  # what the first one does with it
    part: "Found | None" = None  # what an operand explains by itself: less, but with a second mistake maybe more

    @property
    def place(self) -> Expression:
        return self.origin or next(iter(self.shown or self.patch))

    @property
    def option(self) -> Option:
        return next(iter(self.patch.values()))

    @property
    def has_other_arguments(self) -> bool:
        """Tell whether a call gets other values than the reference computes with."""
        return f"; found `{self.place.called}` of" in self.difference.words

    @property
    def is_answered(self) -> bool:
        """Tell whether a right function returned what is replaced: then an argument is wrong.

        The call itself is wrong if it is a step too many, or names another axis.
        """
        is_of_call = self.difference.is_needless or SUMS in self.difference.words
        return not is_of_call and self.trace.is_answered(next(iter(self.patch)))


def join_patches(found: Iterable[Found]) -> Options:
    """Join the proved replacements."""
    return {place: option for each in found for place, option in each.patch.items()}


def place_in(found: Found, adapter: str) -> Found:
    """Note that the replacements belong to an inner call, of this adapter."""
    patch = {place: replace(option, adapter=option.adapter or adapter) for place, option in found.patch.items()}
    return replace(found, patch=patch)


def list_explained(found: Iterable[Found]) -> set[str]:
    """Return the names of the tests that some replacements explain together."""
    return {name for each in found for name in each.explains}


def is_plain(found: Sequence[Found]) -> bool:
    return all(each.difference.is_simple for each in found)


def list_doubtful(found: Sequence[Found]) -> list[Expression]:
    """List where else the mistakes may be; instead of two there may be one, which a change of the code shows."""
    return [place for each in found for place in _list_doubtful(each) or [each.place] * (len(found) > 1)]


def _list_doubtful(found: Found) -> list[Expression]:
    """List where else a mistake may be.

    It may be in unknown masks among the operands, inside a call, where an axis is set, in an index that is unknown or
    that a caller passes, or near a place that is no proof. A place is a proof if the difference is simple, or if the
    operands are earlier checkpoints and all later values are right.
    """
    trace = found.trace
    place = found.place if found.place in trace.objects else next(iter(found.patch))  # a constant is in no trace
    wanted, operands = trace.steps[found.option.names[0]].order, trace.list_operands(place)
    if masks := [each for each in operands if trace.is_mask(each) and not trace.match(each)]:
        return [*map(trace.find_origin, masks)]
    if inside := trace.inside.get(place):
        return [each for each in reversed(trace.places) if each in inside]
    if SUMS in found.difference.words and not any(isinstance(each, ast.Constant) for each in ast.walk(place.node)):
        return [place]  # the axis is set elsewhere
    indices = _list_indices(place, operands)
    tensors = [each for each in indices if not trace.is_number(each) and not trace.match(each)]
    if given := [*filter(None, map(trace.find_argument, indices)), *map(trace.find_origin, tensors)]:
        return given
    known = [match for each in operands if (match := trace.match(each))]
    are_earlier = all(trace.steps[each.names[0]].order < wanted for each in known if each.names[0] in trace.steps)
    is_first = 0 < len(operands) == len(known) and are_earlier
    return [] if found.difference.is_simple or (is_first and found.is_clean) else [*found.patch]


def list_wrong_masks(found: Sequence[Found]) -> list[Found]:
    """List the masks that differ in a simple manner among the operands of a value that does not."""
    trace, masks = found[-1].trace, list[Found]()
    operands = trace.list_operands(found[-1].place) if not found[-1].difference.is_simple else ()
    for operand in filter(trace.is_numeric, operands):
        is_mask = getattr(trace.values[operand][0], "dtype", None) == torch.bool
        origin = trace.find_origin(operand)
        options = list_options(trace, origin) if is_mask and not trace.match(operand) else ()
        differences = [({origin: each}, compare(trace, {origin: each})) for each in options]
        masks += [Found(each, trace, how, found[-1].explains) for each, how in differences if how.is_simple]
    return masks


def _list_indices(place: Expression, operands: Sequence[Expression]) -> list[Expression]:
    """List the operands that are indices: of `x[i]`, `i`."""
    index = place.node.slice if isinstance(place.node, ast.Subscript) else ast.Pass()
    return [each for each in operands if any(each.node is node for node in ast.walk(index))]


def rank(found: Sequence[Found]) -> tuple[int, int, int]:
    """Rank explanations by the number of tests, by how many differences are simple, and by how few they are."""
    plain = sum(each.difference.is_simple for each in found)
    return len(list_explained(found)), plain, -len(found)


def list_fewer(found: Sequence[Found]) -> Iterator[tuple[Found, list[Found]]]:
    """List all replacements but one, or without one of its places; the last one stays."""
    for i, each in enumerate(found[:-1]):
        yield each, [*found[:i], *found[i + 1 :]]
        for place in each.patch if len(each.patch) > 1 else ():
            patch = {other: option for other, option in each.patch.items() if other is not place}
            fewer = replace(each, patch=patch, difference=compare(each.trace, patch), shown=())
            yield each, [*found[:i], fewer, *found[i + 1 :]]


def describe_correction(found: Sequence[Found], shown: int = 2) -> str:
    """Say which places were corrected for a proof; `shown` of them are marked."""
    names = {name for each in found for name in each.option.names}
    if len(found) == 1:
        places = 1 if found[0].origin else len(found[0].shown or found[0].patch)
        is_elsewhere = bool(found[0].shown or found[0].origin)
        is_one = len(names) == places == 1 and not found[0].option.is_series and not is_elsewhere
        several = {1: "With this corrected", 2: "With both places corrected"}
        return f"With {min(names)} here" if is_one else several.get(places, "With all of these corrected")
    more = "".join(f" and line {each.place.line}" for each in found[shown:])
    are_more = any(len(each.patch) > 1 for each in found)
    return "With all of these corrected" if are_more else f"With these two{more} corrected"


class Outcome(NamedTuple):
    """The effect of one replacement on a run."""

    passed: bool  # whether the test passes
    is_clean: bool  # whether everything computed later is right, too
    moved: bool  # whether the output changes
    raised: bool  # whether the code raises, and did not before
    newly_right: int  # how many checkpoints are right that were not


def judge(before: Trace, divergence: Expression, change: Options, then: Trace) -> Outcome:
    """Compare a run with a replacement with the run before it."""
    moved = then.came is None or not is_equal(then.came, before.came)
    raised = isinstance(before.error, WrongAnswer) and not isinstance(then.error, WrongAnswer | None)
    count = count_newly_right(before, then, change) if moved and not then.passed and not raised else 0
    return Outcome(then.passed, then.passed and then.is_clean_after(divergence), moved, raised, count)


def count_newly_right(before: Trace, then: Trace, change: Options) -> int:
    """Count the checkpoints that only a replacement makes right somewhere, without those that it puts in itself."""
    computed = [each for each in before.places if isinstance(each.node, ast.Call | ast.BinOp)]
    wrong = [place for place in computed if place not in change and not before.match(place)]
    known = {name for option in change.values() for name in option.names}
    known |= {name for place in before.places if (match := before.match(place)) for name in match.names}
    return len({name for place in wrong if (match := then.match(place)) for name in match.names} - known)

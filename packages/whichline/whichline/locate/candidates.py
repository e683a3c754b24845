"""Candidates: the checkpoints that may replace a first divergence, or a value from which it is computed."""

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import torch
from torch import Tensor

from whichline.locate.difference import find_other
from whichline.locate.known import Match
from whichline.locate.named import span_of
from whichline.locate.options import Option, Options, find_counterparts, find_what_is, list_alike, list_options, name_at
from whichline.locate.probe import Expression
from whichline.locate.source_location import list_assignments, read_tree
from whichline.locate.trace import Trace
from whichline.locate.values import as_value, is_near, is_one
from whichline.rules.pairing import INIT

GROUPED = 8  # options of a divergence that are tried together with those of like divergences
NEXT = 8  # later checkpoints that are tried in place of an operand
UPSTREAM, LATER = 16, 4  # values further upstream, and later checkpoints that are tried in place of each


@dataclass
class Candidates:
    """Lists the replacements to try at some first divergences."""

    traces: Mapping[Expression, Trace]  # by divergence, a trace in which it is one
    _options: dict[Expression, list[Option]] = field(default_factory=dict)

    def list(self, divergence: Expression) -> Iterator[Options]:
        """List the candidates: two operands exchanged, a checkpoint, and like checkpoints in like divergences.

        A right function returns wrong values only for wrong arguments, so these get first the siblings that it lacks.
        """
        yield from list_exchanges(trace := self.traces[divergence], divergence)
        operands = trace.list_operands(divergence) if trace.is_answered(divergence) else []
        given = {name for each in operands if (match := trace.match(each)) for name in match.names}
        for operand in operands:
            lacking = (each for each in list_siblings(trace, operand) if each.kinds and each.names[0] not in given)
            yield from ({operand: option} for option in lacking)
        yield from ({divergence: option} for option in self.options(divergence))
        made = trace.objects[divergence][0] if trace.is_standalone(divergence) else None
        reads = [each for each in trace.places if each.is_read and any(x is made for x in trace.objects[each])]
        for read in reads if made is not None and len(reads) > 1 else ():  # it may be wrong for one use alone
            yield from ({read: option} for option in self.options(divergence)[:GROUPED] if option.axes is not None)
        for option in self.options(divergence)[:GROUPED]:
            if len(group := self._find_group(divergence, option)) > 1:
                yield group

    def options(self, divergence: Expression) -> Sequence[Option]:
        if divergence not in self._options:
            self._options[divergence] = list_options(self.traces[divergence], divergence)
        return self._options[divergence]

    def _find_group(self, first: Expression, option: Option) -> Options:
        """Put an option in its place, and those for its counterparts in later divergences of the same function."""
        group = {first: option}
        if not find_counterparts().search(option.names[0]):
            return group
        divergences = list(self.traces)
        order = self.order(first, option)
        for divergence in divergences[divergences.index(first) + 1 :]:
            if (divergence.file, divergence.function) != (first.file, first.function):
                continue
            alike = {self.order(divergence, each): each for each in self.options(divergence) if each.is_like(option)}
            if following := [each for each in sorted(alike) if each > order]:
                order = following[0]
                group[divergence] = alike[order]
        return group

    def order(self, divergence: Expression, option: Option) -> int:
        return self.traces[divergence].steps[option.names[0]].order


def list_exchanges(trace: Trace, divergence: Expression) -> Iterator[Options]:
    """List exchanges of two operands that are the same checkpoint for two counterparts, as of keys and values."""
    operands = [(each, option) for each in trace.list_operands(divergence) if (option := find_what_is(trace, each))]
    for (first, one), (second, other) in combinations(operands, 2):
        if one.is_like(other) and not _is_unpacked_as(trace, first, other):
            here, there = (find_counterparts().findall(each.names[0]) for each in (one, other))
            kinds = (here[0], there[0]) if len(here) == len(there) == 1 else None
            yield {first: replace(other, kinds=kinds), second: replace(one, kinds=kinds and kinds[::-1])}


def _is_unpacked_as(trace: Trace, place: Expression, other: Option) -> bool:
    """Tell whether a name that was unpacked begins like the right counterpart: then the unpacking is wrong."""
    name = place.node.id if isinstance(place.node, ast.Name) else ""
    unpacked = {each.node.id for each in trace.places if each.is_unpacked and isinstance(each.node, ast.Name)}
    words = find_counterparts().findall(other.names[0])
    return name in unpacked and any(word.startswith(name[0]) for word in words)


def list_returned_early(trace: Trace) -> list[Expression]:
    """List the expressions that were returned, if they equal an earlier checkpoint or have another shape."""
    parts = trace.came if isinstance(trace.came, tuple | list) else (trace.came,)
    last = list(trace.steps)[-1]
    for what, part in zip(trace.test.cases()[0].outputs, parts, strict=False):
        name = f"the {what}" if f"the {what}" in trace.steps else last
        came = [place for place in trace.places if any(is_one(each, part) for each in trace.objects[place])]
        match = trace.match(came[-1]) if came else None
        right = trace.steps[name].value.tensor
        if match and not (part.shape == right.shape and is_near(as_value(part).tensor, right)):
            made = [each for each in came if not isinstance(each.node, ast.Name)]
            alike = (each for each in trace.places if trace.match(each) == match)
            return made or [each for each in alike if not isinstance(each.node, ast.Name)]
    return []


def list_siblings(trace: Trace, operand: Expression) -> Iterator[Option]:
    """List the same checkpoint as an operand for its counterparts; for a mask, list the other masks."""
    match = trace.match(operand)
    if not match or match.names[0] not in trace.steps:
        return
    here = find_what_is(trace, operand)
    alike = list_alike(trace.steps, match.names[0])
    if here and here.is_series:
        alike = list_alike(trace.steps, here.names[0])
        yield from (replace(here, names=(name,)) for name in alike if name != here.names[0])
        return
    if set(match.names) < set(alike) and 1 < len(match.names) == len(alike):  # in a loop over the counterparts
        yield Option(tuple(alike), match.axes[0])
    if len(set(match.names)) > 1:
        return
    if match.together:  # a loop takes its slices
        yield from (Option((name,), match.axes[0], is_sliced=True) for name in alike if name != match.names[0])
        return
    for name in alike:
        here, there = find_counterparts().findall(match.names[0]), find_counterparts().findall(name)
        if len(here) == 1 and here != there:
            yield Option((name,), match.axes[0], kinds=(here[0], there[0]))
    if trace.steps[match.names[0]].value.tensor.dtype == torch.bool:
        others = [each for each in list_options(trace, operand) if each.axes in (match.axes[0], None)]
        yield from (replace(each, is_repeated=True) for each in others)


def list_later(trace: Trace, operand: Expression, most: int) -> list[Option]:
    """List the checkpoints after that of a right operand, in the same layout; those with the same words come first.

    A right function with wrong arguments may return what is no checkpoint; any checkpoint may follow that. Where
    an operand is 0 everywhere, as where all inputs are, this is no evidence that it is right.
    """
    if isinstance(value := trace.value(operand)[0], Tensor) and not value.any():
        return []
    if not (here := find_what_is(trace, operand)):
        match, known = trace.match(operand), trace.known
        is_returned = match and match.names[0] in known.values.keys() - trace.steps.keys() - known.given.keys()
        return list_options(trace, operand)[:most] if is_returned else []
    kinds = set(find_counterparts().findall(here.names[0]))
    as_it_is = [replace(here, axes=None)] * (here.axes is not None and list(here.axes) != sorted(here.axes))
    order = trace.steps[here.names[0]].order
    alike = [each for each in list_options(trace, operand) if each.axes == here.axes]
    later = [each for each in alike if trace.steps[each.names[0]].order >= order]
    later = [each for each in later if trace.steps[each.names[0]].ask]  # one without a question is optional
    return [*as_it_is, *sorted(later, key=lambda each: set(find_counterparts().findall(each.names[0])) != kinds)[:most]]


def list_numbers(trace: Trace, divergence: Expression) -> Iterator[Options]:
    """List other numbers for the sizes from which a divergence is computed, such as `width = y.shape[-1]`.

    A name gets only the checkpoints after its own: the size may be right, and its root belongs there; if it is passed
    for another name, any. A parameter that is read several times gets any of them in all of these places.
    """
    for operand in list_upstream(trace, divergence):
        match, alike = trace.match(operand), _list_reads(trace, operand)
        if not trace.is_number(operand) or not (match or alike):
            continue
        options = list_options(trace, operand)
        yield from (dict.fromkeys(alike, option) for option in options if alike)
        if match and operand.is_read:
            step = trace.steps.get(match.names[0])
            later = [each for each in options if step and trace.steps[each.names[0]].order > step.order]
            later = later if step or not find_passed(trace, operand) else options
            yield from ({operand: option} for option in later)
        elif match:
            places = dict.fromkeys((trace.find_origin(operand), operand))
            yield from ({place: option} for option in options for place in places)


def find_passed(trace: Trace, place: Expression) -> Expression | None:
    """Find the name that a call passes for a parameter with another name; of `self.x`, for that of the constructor."""
    if not trace.is_number(place) or not isinstance(place.node, ast.Name | ast.Attribute):
        return None
    name, init = place.text.rpartition(".")[2], f"{place.function.rpartition('.')[0]}.{INIT}"
    here = place.function if place.is_read else init
    read = (each for each in trace.places if (each.file, each.function, each.text) == (place.file, here, name))
    passed = next(filter(None, map(trace.find_argument, read)), None)
    is_name = passed and isinstance(passed.node, ast.Name | ast.Attribute) and passed.text.rpartition(".")[2] != name
    return passed if is_name else None


def _list_reads(trace: Trace, operand: Expression) -> list[Expression]:
    """List all reads of a parameter, if it is read several times."""
    if not operand.is_read or operand.text not in operand.parameters:
        return []
    here = operand.file, operand.function, operand.text
    reads = [each for each in trace.places if each.is_read and (each.file, each.function, each.text) == here]
    return reads if len(reads) > 1 else []


def list_skipped(trace: Trace, divergence: Expression) -> Iterator[Options]:
    """List later checkpoints, and siblings, for an operand or its origin; and like checkpoints for two operands."""
    operands = trace.list_operands(divergence)
    for operand in operands:
        siblings = [each for each in list_siblings(trace, operand) if trace.steps[each.names[0]].ask]
        places = dict.fromkeys((trace.find_sole_origin(operand), operand))
        skipped = [each for each in places if not trace.is_handed_on(each, divergence)]  # an argument is right
        for option in siblings:
            yield from ({place: option} for place in (places if option.kinds else skipped))
        for option in list_later(trace, operand, NEXT):
            yield from ({place: option} for place in skipped if option not in siblings)
    for first, second in combinations(operands, 2):
        for option in list_later(trace, first, NEXT):
            alike = [each for each in list_later(trace, second, NEXT) if each.is_like(option)]
            places = trace.find_origin(first), trace.find_origin(second)
            one, other = places if places[0] is not places[1] else (first, second)
            yield from ({one: option, other: each} for each in alike)


def list_skipped_upstream(trace: Trace, divergence: Expression) -> list[Options]:
    """List later checkpoints for the right values from which a divergence is computed, the next checkpoints first.

    A checkpoint that the code computes from such a value, on the way to the divergence, is not skipped.
    """
    operands = list_upstream(trace, divergence, UPSTREAM)
    operands += [other for each in operands for other in _list_renamed(trace, each) if other not in operands]
    made = [each for each in operands if not trace.is_handed_on(each, divergence)]
    changes: list[Options] = [{each: option} for each in made for option in list_later(trace, each, LATER)]
    changes = [each for each in changes if count_skipped(trace, each)[0] > 0 and not _is_taken(trace, each, operands)]
    return sorted(changes, key=lambda each: count_skipped(trace, each))


def _list_renamed(trace: Trace, place: Expression) -> list[Expression]:
    """List the names that a loop assigns to a name that is read: of `top`, for `top = peak`, `peak`."""
    if not place.is_read or len(trace.values[place]) == 1:
        return []
    given = [value for to, value in list_assignments(ast.walk(read_tree(place.file))) if to == place.text]
    spans = {span_of(value) for value in given if isinstance(value, ast.Name)}
    return [each for each in trace.places if each.file == place.file and each.is_read and span_of(each.node) in spans]


def _is_taken(trace: Trace, change: Options, upstream: Sequence[Expression]) -> bool:
    """Tell whether the checkpoint that would take the place of a value is computed from it further down."""
    ((place, option),) = change.items()
    known = [(each, match) for each in upstream if each is not place and (match := trace.match(each))]
    steps = [each for each, match in known if option.names[0] in match.names]
    return any(place in list_upstream(trace, each) for each in steps)


def list_confused(trace: Trace, divergence: Expression) -> Iterator[Options]:
    """List siblings, such as keys for values, for the right values from which a divergence is computed."""
    for operand in list_upstream(trace, divergence):
        yield from ({operand: option} for option in list_siblings(trace, operand))


def list_lowered(trace: Trace, divergence: Expression) -> Iterator[Options]:
    """List the checkpoints for values that have a very low number in place of −inf, the most upstream first."""
    known = [(each, match) for each in list_upstream(trace, divergence) if (match := trace.match(each))]
    low = [(each, match) for each, match in known if is_low(trace, each, match)]
    options = [(each, Option(match.names, match.axes[0])) for each, match in reversed(low)]
    yield from ({each: option} for each, option in options)
    yield from ({each: replace(option, is_low=True)} for each, option in options)  # where −inf becomes NaN


def is_low(trace: Trace, place: Expression, match: Match) -> bool:
    """Tell whether a value has a low number where its checkpoint has −inf."""
    value, step = trace.value(place)[0], trace.steps.get(match.names[0])
    is_hiding = step is not None and bool((step.value.tensor == -math.inf).any())
    return is_hiding and isinstance(value, Tensor) and bool(value.isfinite().all())


def list_swaps(trace: Trace) -> Iterator[Options]:
    """List exchanges of two parts of one value: `q, v, k = x.chunk(3)`, or `k = x[2]` and `v = x[1]`."""
    parts = [place for place in trace.places if place.is_unpacked or isinstance(place.node, ast.Subscript)]
    known = {place: option for place in parts if (option := find_what_is(trace, place))}
    for (one, option), (other, its) in combinations(known.items(), 2):
        yield from ({one: each, other: option} for each in list_siblings(trace, one) if each.names == its.names)


def count_skipped(trace: Trace, change: Options) -> tuple[int, bool]:
    """Count the checkpoints between a value and its replacement; also tell whether a name is only read there."""
    place, option = next(iter(change.items()))
    match, time = trace.match(place), find_other(trace, place, option)
    step = trace.steps.get(match.names[time]) if match else None
    return trace.steps[name_at(option, trace.steps, time)].order - (step.order if step else 0), place.is_read


def list_upstream(trace: Trace, divergence: Expression, most: int = 40) -> list[Expression]:
    """List the expressions from which a divergence is computed, the nearest first; follow names to their origins."""
    found = dict.fromkeys(each for each in (trace.find_origin(divergence),) if each is not divergence)
    todo = [divergence, *found]
    while todo and len(found) < most:
        for operand in trace.list_operands(todo.pop(0)):
            for each in filter(None, (operand, trace.find_argument(operand), trace.find_origin(operand))):
                if each not in found:
                    found[each] = None
                    todo.append(each)
    return list(found)

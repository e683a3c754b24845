"""Candidates: the checkpoints that may belong at a first divergence, or where its operands come from."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from whichline.locate.difference import find_other
from whichline.locate.options import Option, Options, find_counterparts, find_what_is, list_alike, list_options, name_at
from whichline.locate.probe import Expression
from whichline.locate.trace import Trace

GROUPED = 8  # steps of a root that are tried together with those of like roots
NEXT = 8  # steps that may be missing where an operand is
UPSTREAM, LATER = 16, 4  # what a root is made of, further away, and the steps that may be missing there


@dataclass
class Candidates:
    """Lists what may be tried at the roots of some runs."""

    traces: Mapping[Expression, Trace]  # for each root, a run in which it is one
    _options: dict[Expression, list[Option]] = field(default_factory=dict)

    def list(self, root: Expression) -> Iterator[Options]:
        """List what may be tried at a root: its operands exchanged, a step, the like steps in like roots."""
        yield from list_exchanges(self.traces[root], root)
        for option in self.options(root):
            yield {root: option}
        for option in self.options(root)[:GROUPED]:
            if len(group := self._find_group(root, option)) > 1:
                yield group

    def options(self, root: Expression) -> Sequence[Option]:
        if root not in self._options:
            self._options[root] = list_options(self.traces[root], root)
        return self._options[root]

    def _find_group(self, first: Expression, option: Option) -> Options:
        """A step for one thing, and in roots of the same function those for its counterparts."""
        group = {first: option}
        if not find_counterparts().search(option.names[0]):
            return group
        roots = list(self.traces)
        order = self.order(first, option)
        for root in roots[roots.index(first) + 1 :]:
            if (root.file, root.function) != (first.file, first.function):
                continue
            alike = {self.order(root, each): each for each in self.options(root) if each.is_like(option)}
            if following := [each for each in sorted(alike) if each > order]:
                order = following[0]
                group[root] = alike[order]
        return group

    def order(self, root: Expression, option: Option) -> int:
        return self.traces[root].steps[option.names[0]].order


def list_exchanges(trace: Trace, root: Expression) -> Iterator[Options]:
    """List exchanges of two operands that are the same for two counterparts."""
    operands = [(each, option) for each in trace.list_operands(root) if (option := find_what_is(trace, each))]
    for i, (first, one) in enumerate(operands):
        for second, other in operands[i + 1 :]:
            if one.is_like(other) and not _is_unpacked_as(trace, first, other):
                here, there = (find_counterparts().findall(each.names[0]) for each in (one, other))
                kinds = (here[0], there[0]) if len(here) == len(there) == 1 else None
                yield {first: replace(other, kinds=kinds), second: replace(one, kinds=kinds and kinds[::-1])}


def _is_unpacked_as(trace: Trace, place: Expression, other: Option) -> bool:
    """Tell whether a name was unpacked that begins like what it should be: then it is the unpacking that is wrong."""
    name = place.node.id if isinstance(place.node, ast.Name) else ""
    unpacked = {each.node.id for each in trace.places if each.is_unpacked and isinstance(each.node, ast.Name)}
    words = find_counterparts().findall(other.names[0])
    return name in unpacked and any(word.startswith(name[0]) for word in words)


def list_siblings(trace: Trace, operand: Expression) -> Iterator[Option]:
    """List what a right operand would be for its counterparts; of a mask, the other ones."""
    match = trace.match(operand)
    if not match or match.names[0] not in trace.steps:
        return
    here = find_what_is(trace, operand)
    alike = list_alike(trace.steps, match.names[0])
    if here and here.is_series:
        alike = list_alike(trace.steps, here.names[0])
        yield from (replace(here, names=(name,)) for name in alike if name != here.names[0])
        return
    if set(match.names) < set(alike) and 1 < len(match.names) == len(alike):  # each in turn, in a loop
        yield Option(tuple(alike), match.axes[0])
    if len(set(match.names)) > 1:
        return
    if match.together:  # one after the other
        yield from (Option((name,), match.axes[0], is_sliced=True) for name in alike if name != match.names[0])
        return
    for name in alike:
        here, there = find_counterparts().findall(match.names[0]), find_counterparts().findall(name)
        if len(here) == 1 and here != there:
            yield Option((name,), match.axes[0], kinds=(here[0], there[0]))
    if trace.steps[match.names[0]].value.tensor.dtype == torch.bool:
        yield from (each for each in list_options(trace, operand) if each.axes == match.axes[0])


def list_later(trace: Trace, operand: Expression, most: int) -> list[Option]:
    """The steps that come after a right operand in the same layout, those for the same kind first."""
    if not (here := find_what_is(trace, operand)):
        return []
    kinds = set(find_counterparts().findall(here.names[0]))
    as_it_is = [replace(here, axes=None)] * (here.axes is not None and list(here.axes) != sorted(here.axes))
    order = trace.steps[here.names[0]].order
    later = [
        each
        for each in list_options(trace, operand)
        if each.axes == here.axes and trace.steps[each.names[0]].order >= order
    ]
    later = [each for each in later if trace.steps[each.names[0]].ask]  # else nobody has to take that way
    return [*as_it_is, *sorted(later, key=lambda each: set(find_counterparts().findall(each.names[0])) != kinds)[:most]]


def list_numbers(trace: Trace, root: Expression) -> Iterator[Options]:
    """Sizes, or numbers made of sizes, that a root is made of, where another one may belong: `width = y.shape[-1]`."""
    for operand in list_upstream(trace, root):
        if trace.is_number(operand) and trace.match(operand) and not operand.is_read:
            for option in list_options(trace, operand):
                yield from ({place: option} for place in dict.fromkeys((trace.find_origin(operand), operand)))


def list_missing(trace: Trace, root: Expression) -> Iterator[Options]:
    """Steps that may be missing where the operands of a root are, or were made; and the same in two operands."""
    operands = trace.list_operands(root)
    for operand in operands:
        siblings = [each for each in list_siblings(trace, operand) if trace.steps[each.names[0]].ask]
        places = dict.fromkeys((trace.find_sole_origin(operand), operand))
        missing = [each for each in places if not trace.is_handed_on(each, root)]  # nothing is missing in an argument
        for option in siblings:
            yield from ({place: option} for place in places)
        for option in list_later(trace, operand, NEXT):
            yield from ({place: option} for place in missing if option not in siblings)
    for i, first in enumerate(operands):
        for second in operands[i + 1 :]:
            for option in list_later(trace, first, NEXT):
                alike = [each for each in list_later(trace, second, NEXT) if each.is_like(option)]
                places = trace.find_origin(first), trace.find_origin(second)
                one, other = places if places[0] is not places[1] else (first, second)
                yield from ({one: option, other: each} for each in alike)


def list_missing_upstream(trace: Trace, root: Expression) -> list[Options]:
    """Later steps in the places of the right values that a root is made of, the next ones first."""
    changes: list[Options] = [
        {operand: option}
        for operand in list_upstream(trace, root, UPSTREAM)
        if not trace.is_handed_on(operand, root)
        for option in list_later(trace, operand, LATER)
    ]
    changes = [each for each in changes if count_missing(trace, each)[0] > 0]
    return sorted(changes, key=lambda each: count_missing(trace, each))


def list_instead(trace: Trace, root: Expression) -> Iterator[Options]:
    """Other arguments, or other steps of the same kind, in the places of the right values that a root is made of."""
    for operand in list_upstream(trace, root):
        yield from ({operand: option} for option in list_siblings(trace, operand))


def list_swaps(trace: Trace) -> Iterator[Options]:
    """Two parts of one value, each in the place of its sibling: `q, v, k = x.chunk(3)`, `k = x[2]` and `v = x[1]`."""
    parts = [place for place in trace.places if place.is_unpacked or isinstance(place.node, ast.Subscript)]
    known = {place: option for place in parts if (option := find_what_is(trace, place))}
    for place, option in known.items():
        for sibling in list_siblings(trace, place):
            others = [each for each, other in known.items() if other.names == sibling.names]
            yield from ({place: sibling, each: option} for each in others[:1])


def count_missing(trace: Trace, change: Options) -> tuple[int, bool]:
    """Count the steps between what an expression is and what is put there; of equals, one that is made comes first."""
    place, option = next(iter(change.items()))
    match, time = trace.match(place), find_other(trace, place, option)
    reached = trace.steps[match.names[time]].order if match else 0
    return trace.steps[name_at(option, trace.steps, time)].order - reached, place.is_read


def list_upstream(trace: Trace, root: Expression, most: int = 40) -> list[Expression]:
    """List what an expression is made of, the nearest first, through names to where these were made."""
    found = dict.fromkeys(each for each in (trace.find_origin(root),) if each is not root)
    todo = [root, *found]
    while todo and len(found) < most:
        for operand in trace.list_operands(todo.pop(0)):
            for each in (operand, trace.find_origin(operand)):
                if each not in found:
                    found[each] = None
                    todo.append(each)
    return list(found)

"""What an expression was made of, each time that it was computed: a loop, or a layer of a model, repeats it."""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from torch import Tensor

from whichline.locate.probe import Expression

Event = tuple[Expression, int]  # an expression, and which time it was computed


def list_operand_times(
    order: Sequence[Expression], list_operands: Callable[[Expression], Sequence[Expression]]
) -> dict[Event, list[Event]]:
    """List the events of the operands of each event: those since the expression was last computed.

    If there are none, it is the last one: what a loop reads was made before it.

    Args:
        order: the expressions, as often as they were computed.
        list_operands: gives the operands of an expression.
    """
    list_operands = cache(list_operands)  # a loop asks again and again
    found: dict[Event, list[Event]] = {}
    times: Counter[Expression] = Counter()
    read: dict[tuple[Expression, Expression], int] = {}  # by an expression and its operand, how many events of that
    for place in order:
        operands = [each for each in list_operands(place) if each in times]
        firsts = {each: min(read.get((place, each), 0), times[each] - 1) for each in operands}
        found[place, times[place]] = [(each, time) for each in operands for time in range(firsts[each], times[each])]
        read |= {(place, each): times[each] for each in operands}
        times[place] += 1
    return found


def list_inside(depths: Sequence[int], index: int) -> Iterator[int]:
    """Yield the events in the functions that the call at an index calls, the last one first."""
    return takewhile(lambda before: depths[before] > depths[index], range(index - 1, -1, -1))


def list_used(
    operand_times: Mapping[Event, Sequence[Event]],
    depths: Sequence[int] | None,
    values: Mapping[Expression, Sequence[Any]],
    is_known: Callable[[Expression, int], bool],
    put: Collection[Expression],
) -> set[Event | int]:
    """List the events of which a right value is made, and the ids of their values; without what was replaced.

    With the depths of the events, they include what ran in a call that returns a right value, if nothing was replaced
    in it.
    """
    used: set[Event | int] = set()
    events = [*operand_times]
    for i in reversed(range(len(events))):
        event = place, _ = events[i]
        is_computed = not isinstance(place.node, ast.Name) and place not in put
        is_part = isinstance(place.node, ast.Subscript)  # the other parts may be wrong
        if event in used or (is_computed and not is_part and is_known(*event)):
            inner = [each for each in operand_times[event] if each[0] not in put]
            inside = list_inside(depths, i) if depths and isinstance(place.node, ast.Call) else ()
            ran = [events[each] for each in inside]
            inner += ran if not any(each[0] in put for each in ran) else []
            used.update(inner)
            used.update(id(x) for each, time in inner if isinstance(x := values[each][time], Tensor))
    return used

"""What an expression was made of, each time that it was computed: a loop, or a layer of a model, repeats it."""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
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
        found[place, times[place]] = [
            (each, time)
            for each in operands
            for time in range(min(read.get((place, each), 0), times[each] - 1), times[each])
        ]
        read |= {(place, each): times[each] for each in operands}
        times[place] += 1
    return found


def list_used(
    operand_times: Mapping[Event, Sequence[Event]],
    values: Mapping[Expression, Sequence[Any]],
    is_known: Callable[[Expression, int], bool],
    put: Collection[Expression],
) -> set[Event | int]:
    """List the events of which a right value is made, and the ids of their values; without what was replaced."""
    used: set[Event | int] = set()
    for event, operands in reversed([*operand_times.items()]):
        is_computed = not isinstance(event[0].node, ast.Name) and event[0] not in put
        is_part = isinstance(event[0].node, ast.Subscript)  # the other parts may be wrong
        if event in used or (is_computed and not is_part and is_known(*event)):
            inner = [each for each in operands if each[0] not in put]
            used.update(inner)
            used.update(id(x) for place, time in inner if isinstance(x := values[place][time], Tensor))
    return used

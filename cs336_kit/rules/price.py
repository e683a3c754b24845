"""Decide which problem pays for the use of a forbidden function."""

from collections.abc import Collection, Mapping

from cs336_kit.rules.forbidden import home
from cs336_kit.rules.watch import Use


def charged(seen: Mapping[str, Collection[Use]]) -> dict[str, list[Use]]:
    """The uses that each problem pays for, with all of its points.

    A problem pays for each function that a line runs in its tests. It need not if an earlier problem pays for the same
    function on the same line, and is the one in which the function does the work, or comes after that.

    Args:
        seen: what the tests of each problem have run, in the order of the assignment.
    """
    order = list(seen)
    paid: dict[str, list[Use]] = {}
    for number, problem in enumerate(order):
        paid[problem] = sorted(
            use for use in seen[problem] if not any(use in paid[one] for one in order[_first(use, order) : number])
        )
    return {problem: uses for problem, uses in paid.items() if uses}


def _first(use: Use, order: list[str]) -> int:
    """The number of the problem whose work the function does; 0 if no problem is about it, so that any can pay."""
    place = home(use.function)
    return order.index(place) if place in order else 0

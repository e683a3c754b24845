"""Rotary position embedding."""

from collections.abc import Iterator

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.on_paper import describe_numbers


def on_paper(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    """Describe the first wrong pair, and its length before and after."""
    *place, component = (int(i) for i in wrong.nonzero()[0])
    pair = slice(component // 2 * 2, component // 2 * 2 + 2)
    came, given = got[tuple(place)][pair], case.original["in_query_or_key"][tuple(place)][pair].double()
    yield f"the first wrong pair is {component // 2} of the vector at {place}"
    yield f"{describe_numbers(given)} became {describe_numbers(came)}"
    yield f"its length was {given.norm():.4g} and is {came.norm():.4g}: a rotation preserves it"

"""Softmax."""

from collections.abc import Iterator

from torch import Tensor

from problems.softmax.steps import follow_softmax
from whichline.engine.case import Case
from whichline.engine.on_paper import tell_numbers, tell_sum
from whichline.engine.room import Room


def tell_slice(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    """The first wrong slice, and what it sums to."""
    row = got.movedim(case.dim, -1)[tuple(wrong.movedim(case.dim, -1).any(-1).nonzero()[0])]
    yield f"the first wrong slice along `dim`: {tell_numbers(row)}"
    yield tell_sum("it sums", row, 1, nothing)


ROOM = Room(steps={"run_softmax": follow_softmax}, on_paper=tell_slice)

"""Softmax."""

from collections.abc import Iterator

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.on_paper import describe_numbers, describe_sum


def on_paper(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    """Describe the first wrong slice, and its sum."""
    row = got.movedim(case.dim, -1)[tuple(wrong.movedim(case.dim, -1).any(-1).nonzero()[0])]
    yield f"the first wrong slice along `dim`: {describe_numbers(row)}"
    yield describe_sum("it sums", row, 1, nothing)

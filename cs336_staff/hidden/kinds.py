"""Kinds of input for the hidden tests: a room says which ones a problem has, and draws a small case of each.

A property is asked of several kinds of input, each by itself: a program that is wrong for one kind loses a share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from cs336_staff.authoring.cases import CaseSpec, Inputs

Draw = Callable[[Random], CaseSpec]
Kinds = Mapping[str, Draw]
Batch = Callable[[Random], Sequence[int]]

# A softmax over one key hides most mistakes; no more than one of a kind's cases has one.
SIZES = (1, 2, 3, 4, 5)
FEW = (1, 2, 3)


def draw_size(random: Random) -> int:
    """Draw the size of an axis."""
    return random.choice(SIZES)


def draw_axes(number: int, sizes: Sequence[int] = FEW) -> Batch:
    """Draw the sizes of so many batch-like axes."""
    return lambda random: [random.choice(sizes) for _ in range(number)]


draw_one_axis = draw_axes(1)
LEADING: Mapping[str, Batch] = {
    "no-batch": draw_axes(0),
    "one-batch-dim": draw_one_axis,
    "two-batch-dims": draw_axes(2),
}
# For a property of one entry of a batch, which is taken out.
ONE_MORE: Mapping[str, Batch] = {
    "one-batch-dim": draw_axes(2, (2, 3)),
    "two-batch-dims": draw_axes(3, (2, 3)),
}


def change_inputs(kinds: Kinds, change: Callable[[Inputs], Inputs]) -> Kinds:
    """The same cases with their inputs changed, before the right answer is computed."""

    def of(draw: Draw, random: Random) -> CaseSpec:
        spec = draw(random)
        return replace(spec, draw=lambda generator: change(spec.draw(generator)))

    return {kind: partial(of, draw) for kind, draw in kinds.items()}

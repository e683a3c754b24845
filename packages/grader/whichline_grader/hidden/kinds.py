"""Kinds of input for the hidden tests: its specification says which ones a problem has, and draws a small case of each.

A property is asked of several kinds of input, each by itself: a program that is wrong for one kind loses a share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from whichline_grader.authoring.cases import CaseSpec, Inputs

SIZES, LARGE_SIZES = (1, 2, 3, 4, 5), (5, 6, 7, 8)
FEW = (1, 2, 3)


class Spread(Random):
    """Choose for one of several cases: with as many cases as choices, each choice is made once.

    Of the same seed, `turn` 0 chooses at random, and every other one what comes as many places later.
    """

    def __init__(self, seed: int, turn: int) -> None:
        super().__init__(seed)
        self.turn = turn
        large = self.sample(LARGE_SIZES, len(LARGE_SIZES))
        self.large = large[turn:] + large[:turn] if turn else []

    def choice(self, seq: Any) -> Any:
        return seq[(self.randrange(len(seq)) + self.turn) % len(seq)]


def draw_size(random: Spread) -> int:
    """Draw the size of an axis: any in turn 0, and in the others large ones, no two the same.

    One key, one component or two axes of the same size hide mistakes. Since each kind has two cases without them, a
    mistake does not pass by the luck of the draw, and costs the same with every secret.
    """
    size = random.choice(SIZES)
    return random.large.pop() if random.large else size


Draw = Callable[[Spread], CaseSpec]
Kinds = Mapping[str, Draw]
Batch = Callable[[Spread], Sequence[int]]


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

    def of(draw: Draw, random: Spread) -> CaseSpec:
        spec = draw(random)
        return replace(spec, draw=lambda generator: change(spec.draw(generator)))

    return {kind: partial(of, draw) for kind, draw in kinds.items()}

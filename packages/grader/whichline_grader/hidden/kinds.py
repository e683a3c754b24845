"""Kinds of input for the hidden tests. A problem's specification has a function for each kind that draws a small case.

A property is tested on each kind separately, so a program that is wrong for one kind loses that share only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from whichline_grader.authoring.cases import CaseSpec, Inputs

SIZES, LARGE_SIZES = (1, 2, 3, 4, 5), (5, 6, 7, 8)


class Spread(Random):
    """Random choices that spread over several cases: with as many cases as choices, each choice occurs once.

    Turn 0 of a seed chooses at random; turn n takes the choice n places later.
    """

    def __init__(self, seed: int, turn: int) -> None:
        super().__init__(seed)
        self.turn = turn
        large = self.sample(LARGE_SIZES, len(LARGE_SIZES))
        self.large = large[turn:] + large[:turn] if turn else []

    def choice(self, seq: Any) -> Any:
        return seq[(self.randrange(len(seq)) + self.turn) % len(seq)]


def draw_size(random: Spread) -> int:
    """Draw the size of an axis: any size in turn 0, large and distinct ones in the other turns.

    One key, one component or two axes of the same size hide mistakes. Each kind has two cases without them, so a
    mistake costs the same with every secret.
    """
    size = random.choice(SIZES)
    return random.large.pop() if random.large else size


Draw = Callable[[Spread], CaseSpec]
Kinds = Mapping[str, Draw]
Batch = Callable[[Spread], Sequence[int]]


def draw_axes(number: int, sizes: Sequence[int] = (1, 2, 3)) -> Batch:
    """Draw the sizes of `number` batch-like axes."""
    return lambda random: [random.choice(sizes) for _ in range(number)]


draw_one_axis = draw_axes(1)
LEADING: dict[str, Batch] = {"no-batch": draw_axes(0), "one-batch-dim": draw_one_axis, "two-batch-dims": draw_axes(2)}
# One axis more, for a test that takes one entry out of a batch.
ONE_MORE: Mapping[str, Batch] = {"one-batch-dim": draw_axes(2, (2, 3)), "two-batch-dims": draw_axes(3, (2, 3))}


def change_inputs(kinds: Kinds, change: Callable[[Inputs], Inputs]) -> Kinds:
    """Change the inputs of cases before the expected outputs are computed."""

    def draw_changed(draw: Draw, random: Spread) -> CaseSpec:
        spec = draw(random)
        return replace(spec, draw=lambda generator: change(spec.draw(generator)))

    return {kind: partial(draw_changed, draw) for kind, draw in kinds.items()}

"""Search the smallest change of the right program that gives the student's own answers.

A mistake counts only if the right program with it gives what the student's function gave on every call that was tried.
The search is counted in runs of the program and never timed: the same function gets the same answer
under any load.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import in_dtype
from cs336_staff.authoring.table import Answers, Change, Table, alike, ways_of

MORE_RUNS = 1_500  # of the program, for the basic calls, where a search did not explain everything
MOST_FITTED = 2  # calls to which a number is fitted, the last ones
STEPS = 96  # in which a free number is fitted, at most
FINEST = 1 + 1e-7  # of them; answers in float32 tell no more
FEW_STEPS = 6  # in which a number that is right comes twice as near
FAR = 0.3  # a misfit from which no number is looked for
LITTLE = 4  # times smaller than without the number is a misfit that it explains: rounding is not explained by any


def ask_in(dtype: torch.dtype, ask: Callable[..., Any], table: Table, calls: Iterable[str]) -> Answers:
    """The student's answers to calls of a table, as they come, without what raises or has another shape."""
    answers = {}
    for call in calls:
        with suppress(Exception):
            came = ask(*(in_dtype(x, dtype) for x in table.calls[call]))
            if isinstance(came, Tensor) and came.shape == table.expected[call].shape:
                answers[call] = came.detach()
    return answers


@dataclass
class Search:
    """A search for the changes that explain some answers of the student's."""

    table: Table
    answers: Answers
    runs: int = 0
    _known: dict[Any, Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.most = self.table.most_runs

    def explain(self) -> list[Change] | None:
        """The fewest changes with which the right program gives these answers, or None if they are not in the table.

        Without any change, there is nothing wrong with the answers. What is wrong in the basic calls is there in the
        others as well, so that it is looked for first where one change does not explain everything.
        """
        basic = self.basic
        return next(
            itertools.chain(
                self._extend([], self.answers, 0),
                self._extend([], self.answers, 1),
                (
                    found
                    for below, above in ((0, 2), (1, 1), (1, 2), (2, 0), (2, 1))
                    for first in self._extend([], basic, below)
                    for found in self._extend(first, self.answers, above)
                ),
            ),
            None,
        )

    @property
    def basic(self) -> Answers:
        return {call: came for call, came in self.answers.items() if call in self.table.basic}

    def explain_basic(self) -> list[Change] | None:
        """The same for the basic calls alone."""
        self.most += MORE_RUNS
        return next(itertools.chain(*(self._extend([], self.basic, count) for count in range(3))), None)

    def _extend(self, changes: list[Change], answers: Answers, count: int) -> Iterator[list[Change]]:
        """Add so many changes, such that these answers come out, while there are runs left."""
        wrong = {call for call, came in answers.items() if not self._gives(changes, call, came)}
        order = sorted(answers, key=lambda call: call not in wrong)
        if count and not wrong:
            return
        if count > 1 and not any(answers[call].isfinite().any() for call in wrong):
            return  # of NaN alone, too many pairs are the cause
        for added in self._candidates(changes, count, wrong, answers.keys() - wrong):
            if count and self.runs > self.most:
                return
            free = next((change for change in added if change.numbers), None)
            both: list[Change] | None = [*changes, *added]
            if free:
                spoils = wrong if count == 1 else wrong & self.table.spoiled[free][0]
                both = self._fit(both, free, [call for call in answers if call in spoils][-MOST_FITTED:], answers)
            if both is not None and self._agrees(both, answers, order):
                yield both

    def _candidates(
        self, changes: list[Change], count: int, wrong: set[str], right: set[str]
    ) -> Iterator[tuple[Change, ...]]:
        """Changes of other steps that together can spoil the wrong answers, those that spoil no right one first."""
        taken = {change.step for change in changes}
        table = [change for change in self.table.changes if change.step not in taken]
        if count < 2:
            yield from sorted(itertools.combinations(table, count), key=has_number)
            return
        spoiled = self.table.spoiled
        pairs = [
            (one, other)
            for one, other in itertools.combinations(table, 2)
            if one.step != other.step
            and wrong <= spoiled[one][0] | spoiled[other][0]
            and not (one.numbers and other.numbers)
        ]

        def how_far_fetched(pair: tuple[Change, Change]) -> tuple[bool, int, bool]:
            """Tell whether they spoil what is right, how many numbers to try, and if one would be nothing alone."""
            one, other = (spoiled[change] for change in pair)
            numbers = sum(len(change.numbers) for change in pair)
            return bool(right & (one[1] | other[1])), numbers, not (one[0] & wrong and other[0] & wrong)

        yield from sorted(pairs, key=how_far_fetched)

    def _gives(self, changes: list[Change], call: str, came: Tensor) -> bool:
        """Tell whether a program with these changes gives this answer."""
        others = (None, *range(len(self.table.also_right)))
        return any(alike(self._run(changes, call, also), came) for also in others)

    def _agrees(self, changes: list[Change], answers: Answers, order: Iterable[str]) -> bool:
        """Tell whether a program with these changes gives all answers."""
        for also in (None, *range(len(self.table.also_right))):
            for call in order:
                came = self._run(changes, call, also)
                if not alike(came, answers[call]):
                    if call in self.table.basic and not (came is not None and came.isnan().any()):
                        return False  # no other right way makes a difference
                    break
            else:
                return True
        return False

    def _fit(self, changes: list[Change], free: Change, where: list[str], answers: Answers) -> list[Change] | None:
        """The changes with the free number that comes nearest to these answers, or None if no number comes near."""
        if not where:
            return None

        def at(number: float) -> list[Change]:
            return [each.at(number) if each is free else each for each in changes]

        def loss(number: float, where: list[str] = where) -> float:
            return max(misfit(self._run(at(number), call), answers[call]) for call in where)

        near = [number for number in free.numbers if loss(number, where[-1:]) <= FAR]
        if not near:
            return None
        low, best = min((loss(number), number) for number in near)
        without = [each for each in changes if each is not free]
        before = max(misfit(self._run(without, call), answers[call]) for call in where)
        step, earlier, fits = 2.0, FAR, False
        for taken in range(STEPS):
            fits = all(alike(self._run(at(best), call), answers[call]) for call in where)
            if step < FINEST:
                break
            if taken % FEW_STEPS == 0 and not fits:
                if low > earlier:
                    return None
                earlier = low / 2
            now, other = min((loss(other), other) for other in (best * step, best / step))
            low, best, step = (now, other, step) if now < low else (low, best, step**0.5)
        return at(best) if fits and low < before / LITTLE else None

    def _run(self, changes: list[Change], call: str, also: int | None = None) -> Tensor | None:
        key = (*changes, call, also)
        if key not in self._known:
            self.runs += 1
            others = {} if also is None else self.table.also_right[also]
            self._known[key] = self.table.answer({**others, **ways_of(changes)}, call)
        return self._known[key]


def has_number(changes: Iterable[Change]) -> bool:
    return any(change.numbers for change in changes)


def misfit(x: Tensor | None, y: Tensor) -> float:
    """Measure how far an answer is from another: 0 to 1."""
    if x is None or x.shape != y.shape:
        return 1.0
    gap = (x - y).nan_to_num(0.0, 1e6, -1e6).abs() / (1e-9 + y.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return float(gap.clamp(max=1).where(x.isnan() == y.isnan(), 1.0).mean())

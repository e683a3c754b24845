"""A problem's program as a table: the right way to do each step, and other ways, each of which is a mistake."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import is_float, near

CLOSE = 5e-4  # less than a test allows: an answer that fails one is not taken for what a right program gives
INFINITE = 1e31  # stands for it where the gaps between numbers are
Way = Callable[..., Any]
Ways = Mapping[str, Way]
Answers = Mapping[str, Tensor]


@dataclass(frozen=True)
class Change:
    """Another way to do one step of the right program: one mistake.

    Args:
        step: what it does otherwise.
        id: its name, "scale-missing".
        do: does it; where a number is free, that is its last argument.
        numbers: where the number is looked for first.
        number: what was found.
    """

    step: str
    id: str
    do: Way
    numbers: tuple[float, ...] = ()
    number: float | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self.do(*arguments) if self.number is None else self.do(*arguments, self.number)

    def at(self, number: float) -> "Change":
        return replace(self, numbers=(), number=number)


def ways_to(step: str, *rows: Any) -> tuple[Change, ...]:
    """Changes of a step: id, function, and numbers if one is free."""
    return tuple(Change(step, *row) for row in rows)


def random(seed: int, *shape: int) -> Tensor:
    """The same normally distributed numbers each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sloped(x: Tensor, slope: Tensor) -> Tensor:
    """The numbers of one tensor, with the gradient of another."""
    return x.detach() + slope - slope.detach()


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in its own dtype, with the digits of another one."""
    return x.to(dtype).to(x.dtype)


@dataclass(frozen=True)
class Table:
    """A program in steps.

    Args:
        run: does the steps: it is called with the way to do each step, by name, and the arguments of the function.
        right: the right way to do each step.
        changes: the mistakes, the most common first.
        calls: the arguments of each call that is tried, by what it is called in a sentence: "For three dimensions". The
            last ones tell most about numbers.
        basic: those of the calls that use least of what the function can do; what is wrong there is wrong everywhere.
        also_right: other ways that make no difference in a right program, but do beside a mistake; in a basic call only
            where there is NaN.
        most_runs: of the program, in one search: a student waits for them.
    """

    run: Callable[..., Any]
    right: Ways
    changes: Sequence[Change]
    calls: Mapping[str, tuple[Any, ...]]
    basic: frozenset[str]
    also_right: tuple[Ways, ...] = ()
    most_runs: int = 5_000

    def call(self, changes: Sequence[Change], *arguments: Any, **named: Any) -> Any:
        """Call the program with these changes as the tests call the student's function.

        It computes in float32 at least, and answers in the dtype of its inputs, with several tensors where it has them.
        """
        given = [x for x in (*arguments, *named.values()) if is_float(x)]
        wide = [widen(x) for x in arguments]
        answer = self.run({**self.right, **ways_of(changes)}, *wide, **{name: widen(x) for name, x in named.items()})
        dtype = given[0].dtype
        return answer.to(dtype) if isinstance(answer, Tensor) else tuple(x.to(dtype) for x in answer)

    def answer(self, ways: Ways, call: str) -> Tensor | None:
        """Run the program with these ways; None where it fails."""
        try:
            return self.run({**self.right, **ways}, *self.calls[call]).float()
        except (RuntimeError, ValueError, IndexError):
            return None

    @cached_property
    def expected(self) -> Answers:
        """The right answers."""
        return {call: self.run(self.right, *arguments).float() for call, arguments in self.calls.items()}

    @cached_property
    def spoiled(self) -> Mapping[Change, tuple[frozenset[str], frozenset[str]]]:
        """The calls whose answers a change alone makes wrong: with some number, and with every number.

        Of many numbers the first, one in the middle and the last are tried.
        """
        return {change: self._spoiled(change) for change in self.changes}

    def _spoiled(self, change: Change) -> tuple[frozenset[str], frozenset[str]]:
        some = [change.at(number) for number in change.numbers[:: max(1, len(change.numbers) // 2)]] or [change]
        wrong = [
            frozenset(
                call for call, right in self.expected.items() if not alike(self.answer(ways_of([each]), call), right)
            )
            for each in some
        ]
        return frozenset().union(*wrong), frozenset.intersection(*wrong)


def alike(x: Tensor | None, y: Tensor | None) -> bool:
    """Tell whether two programs that do the same could have given these."""
    return x is not None and y is not None and x.shape == y.shape and near(x, y, CLOSE)


def widen(x: Any) -> Any:
    """A tensor of half precision in float32; anything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x


def ways_of(changes: Iterable[Change]) -> dict[str, Way]:
    return {change.step: change for change in changes}

"""Search the smallest change of the right program that gives the student's own answers.

A problem's program is a table: the right way to do each step, and other ways, each of which is a mistake. A cause is
told only if the right program with that mistake in it gives what the student's function gave on every call that was
tried. The search is counted in runs of the program and never timed: the same function gets the same answer under any
load.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import in_dtype, index_of, is_float
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, number

MORE_RUNS = 1_500  # of the program, for the basic calls, where a search did not explain everything
MOST_FITTED = 2  # calls to which a number is fitted, the last ones
STEPS = 96  # in which a free number is fitted, at most
FINEST = 1 + 1e-7  # of them; answers in float32 tell no more
FEW_STEPS = 6  # in which a number that is right comes twice as near
FAR = 0.3  # a misfit from which no number is looked for
LITTLE = 4  # times smaller than without the number is a misfit that it explains: rounding is not explained by any
CLOSE = 5e-4  # of the largest number of an answer: what two programs that do the same may differ by in float32
NAN, INFINITE = 1e30, 1e31  # stand for them where numbers are compared

Way = Callable[..., Any]
Ways = Mapping[str, Way]
Answers = Mapping[str, Tensor]
Place = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """Another way to do one step of the right program: one mistake.

    Args:
        step: what it does otherwise.
        id: its name in findings, "scale-missing".
        do: does it; where a number is free, that is its last argument.
        says: what is wrong, in a sentence; {} is the number.
        asks: what a tutor would ask.
        numbers: where the number is looked for first.
        number: what was found.
    """

    step: str
    id: str
    do: Way
    says: str
    asks: str
    numbers: tuple[float, ...] = ()
    number: float | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self.do(*arguments) if self.number is None else self.do(*arguments, self.number)

    def at(self, number: float) -> "Change":
        return replace(self, numbers=(), number=number)


def ways_to(step: str, asks: str, *rows: Any, asks_of: Mapping[str, str] | None = None) -> tuple[Change, ...]:
    """Changes of a step: id, sentence, function, and numbers if one is free.

    They share a question, but for those whose id is in `asks_of`.
    """
    own = asks_of or {}
    return tuple(Change(step, id, do, says, own.get(id, asks), *numbers) for id, says, do, *numbers in rows)


def sloped(x: Tensor, slope: Tensor) -> Tensor:
    """The numbers of one tensor, with the gradient of another."""
    return x.detach() + slope - slope.detach()


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in its own dtype, with the digits of another one."""
    return x.to(dtype).to(x.dtype)


@dataclass(frozen=True)
class Rounding:
    """A step of a program that is right but for the digits that it loses.

    Args:
        id: its name in findings.
        says: what is wrong, in a sentence; {} is the dtype.
        dtypes: of the inputs with which it loses digits.
        ways: the ways that lose them, for a dtype.
    """

    id: str
    says: str
    dtypes: tuple[torch.dtype, ...]
    ways: Callable[[torch.dtype], Ways]


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
        basic_words: what the basic calls have in common: "without a mask".
        digits: those of the basic calls that show best how many digits are lost.
        roundings: steps that lose digits.
        cuts: mistakes in the gradients alone; one of them says nothing if nothing is left to correct once the answers
            are right.
        most_runs: of the program, in one search: a student waits for them.
    """

    run: Callable[..., Any]
    right: Ways
    changes: Sequence[Change]
    calls: Mapping[str, tuple[Any, ...]]
    basic: frozenset[str]
    also_right: tuple[Ways, ...] = ()
    basic_words: str = ""
    digits: tuple[str, ...] = ()
    roundings: tuple[Rounding, ...] = ()
    cuts: tuple[Change, ...] = ()
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
    if x is None or y is None or x.shape != y.shape:
        return False
    size = y.nan_to_num(0.0, 0.0, 0.0).abs().max().clamp_min(1e-3)
    x, y = x.nan_to_num(NAN, INFINITE, -INFINITE), y.nan_to_num(NAN, INFINITE, -INFINITE)
    return bool(((x - y).abs() <= CLOSE * size).all())


def ask_in(dtype: torch.dtype, ask: Ask, table: Table, calls: Iterable[str]) -> Answers:
    """The student's answers to calls of a table, as they come, without what raises or has another shape."""
    answers = {}
    for call in calls:
        with suppress(NoAnswerError):
            came = ask(*(in_dtype(x, dtype) for x in table.calls[call]))
            if isinstance(came, Tensor) and came.shape == table.expected[call].shape:
                answers[call] = came
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


def widen(x: Any) -> Any:
    """A tensor of half precision in float32; anything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x


def has_number(changes: Iterable[Change]) -> bool:
    return any(change.numbers for change in changes)


def ways_of(changes: Iterable[Change]) -> dict[str, Way]:
    return {change.step: change for change in changes}


def misfit(x: Tensor | None, y: Tensor) -> float:
    """Measure how far an answer is from another: 0 to 1."""
    if x is None or x.shape != y.shape:
        return 1.0
    gap = (x - y).nan_to_num(0.0, 1e6, -1e6).abs() / (1e-9 + y.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return float(gap.clamp(max=1).where(x.isnan() == y.isnan(), 1.0).mean())


def tell_changes(table: Table, changes: Sequence[Change], answers: Answers, where: str = "") -> list[Finding]:
    """Findings for changes with which the right program gives these answers.

    Args:
        where: what these calls have in common, " without a mask", where they are not all calls.
    """
    findings = []
    for change in changes:
        call, place = _where_it_shows(table, change, [each for each in changes if each is not change], answers)
        measured = tell_gap(call, answers[call], table.expected[call], place)
        means = change.says.format("" if change.number is None else spell(change.number))
        findings.append(Finding(change.id, measured, means, change.asks, program=partial(table.call, [change])))
    these = {1: "this mistake", 2: "two mistakes, this one and another,"}.get(len(changes), f"{len(changes)} mistakes")
    tried = f"all {len(answers)} calls" if len(answers) > 1 else "the only call"
    answered = (
        ""
        if len(answers) >= len(table.basic if where else table.calls)
        else " in which your answer has the right shape"
    )
    proof = f"A program that is right but for {these} gives your numbers in {tried}{where}{answered}."
    return [*findings[:-1], *(replace(last, means=f"{last.means} {proof}") for last in findings[-1:])]


def _where_it_shows(table: Table, change: Change, others: list[Change], answers: Answers) -> tuple[str, Place]:
    """The call, and the place in it, that best shows a change: if there is one, a call that the others leave right."""
    wrong = [call for call in answers if not alike(answers[call], table.expected[call])]
    without = {call: table.answer(ways_of(others), call) for call in wrong}
    shows = [call for call in wrong if not alike(without[call], answers[call])]
    isolated = [call for call in shows if alike(without[call], table.expected[call])]
    call = (isolated or shows or wrong)[0]
    was = without[call]
    return call, _furthest(answers[call], table.expected[call] if was is None or call not in shows else was)


def _furthest(came: Tensor, other: Tensor) -> Place:
    gap = (came - other).abs().nan_to_num(INFINITE, INFINITE)
    return tuple(index_of(int(gap.argmax()), gap.shape))


def tell_gap(call: str, came: Tensor, right: Tensor, place: Place | None = None) -> str:
    """Compare an answer with the right one at a place: "For two dimensions, your answer at [0, 3] is 2; …".

    Without a place, it is the one that is furthest from the right one.
    """
    place = _furthest(came, right) if place is None else place
    return f"{call}, your answer at {list(place)} is {number(came[place])}; it should be {number(right[place])}."


def spell(x: float) -> str:
    """Three digits, or two of a large number: "0.378", "-10,000", "-1e9"."""
    if 1e-3 < abs(x) < 1e3:
        return f"{x:.3g}"
    return (
        f"{float(f'{x:.2g}'):,.0f}"
        if 1 <= abs(x) < 1e6
        else f"{x:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    )

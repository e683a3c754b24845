"""Count for a class report: grades, tests that pass, findings and which of them go together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor
from statistics import fmean, median

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.pages.entry import Entry, Told

STEPS = (0.5, 1, 2, 5, 10, 20, 50, 100)
MOST_BARS = 24
TOGETHER = 3  # submissions with both findings, and times as many as chance would give: fewer mean nothing
MOST_PAIRS = 20
MOST = 10  # of the slowest, and of those that take the most memory


@dataclass(frozen=True)
class Bar:
    """The grades that lie in [low, high), counted; the last bar has the best grade too."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Grades:
    """The distribution of the grades, one for each student."""

    bars: Sequence[Bar]
    median: float
    mean: float
    lowest: float
    highest: float

    @property
    def tallest(self) -> int:
        return max(bar.count for bar in self.bars)


@dataclass(frozen=True)
class Passing:
    """The share of the submissions that pass a test function.

    Args:
        test: its name.
        hidden: whether students have it.
        share: the mean over the submissions of the share of its cases that pass.
        whole: how many submissions pass all of them.
    """

    test: str
    hidden: bool
    share: float
    whole: int


@dataclass(frozen=True)
class Found:
    """A finding, an example of it, and the submissions that have it."""

    told: Told
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Together:
    """Two findings that many submissions have both of; `times` is how often, compared with chance."""

    one: Found
    other: Found
    both: int
    times: float


def distribution(entries: Iterable[Entry]) -> Grades:
    """Count the grades of all students, in steps of a round number of points from 0 to the most that anyone has."""
    points = [grade.points for entry in entries for grade in entry.grades]
    most = max(*points, *(entry.grading.maximum for entry in entries), 0)
    step = next((step for step in STEPS if most / step <= MOST_BARS), STEPS[-1])
    last = max(0, -floor(-most / step) - 1)
    counts = Counter(min(last, max(0, floor(point / step))) for point in points)
    bars = [Bar(number * step, (number + 1) * step, counts[number]) for number in range(last + 1)]
    return Grades(bars, median(points), fmean(points), min(points), max(points))


def passing(entries: Sequence[Entry], problem: Problem) -> list[Passing]:
    """Average over the submissions, for each test function of a problem, public ones first.

    Of a bonus problem, those that have not written it do not count.
    """
    cases: dict[tuple[bool, str], list[float]] = {}
    whole = Counter[str]()
    for entry in entries:
        if problem.bonus and not entry.wrote(problem):
            continue
        functions: dict[tuple[bool, str], list[bool]] = {}
        for result in entry.of(problem):
            functions.setdefault((result.hidden, result.function), []).append(result.passed)
        for key, passed in functions.items():
            cases.setdefault(key, []).append(fmean(passed))
            whole[key[1]] += all(passed)
    return [Passing(name, hidden, fmean(each), whole[name]) for (hidden, name), each in sorted(cases.items())]


def findings(entries: Iterable[Entry]) -> list[Found]:
    """List what the examinations found, the commonest first."""
    found: dict[tuple[str, str], tuple[Told, list[Entry]]] = {}
    for entry in entries:
        for told in entry.told:
            found.setdefault((told.problem, told.id), (told, []))[1].append(entry)
    return sorted((Found(*each) for each in found.values()), key=lambda each: -len(each.entries))


def together(found: Sequence[Found], submissions: int) -> list[Together]:
    """List the pairs of findings that are found together more often than chance would have it, the strongest first."""
    found = [each for each in found if each.told.runs and len(each.entries) >= TOGETHER]
    have = [(each, {entry.id for entry in each.entries}) for each in found]
    pairs = [
        Together(one, other, both, both * submissions / (len(first) * len(second)))
        for (one, first), (other, second) in combinations(have, 2)
        if (both := len(first & second)) >= TOGETHER
    ]
    pairs = [pair for pair in pairs if pair.times >= TOGETHER]
    return sorted(pairs, key=lambda pair: (-pair.both, -pair.times))[:MOST_PAIRS]


def slowest(entries: Iterable[Entry]) -> list[Entry]:
    """The submissions that took longest to grade."""
    return sorted(entries, key=lambda entry: -entry.grading.seconds)[:MOST]


def hungriest(entries: Iterable[Entry]) -> list[Entry]:
    """The submissions that took the most memory."""
    known = [entry for entry in entries if entry.grading.notes.peak_memory]
    return sorted(known, key=lambda entry: -entry.grading.notes.peak_memory)[:MOST]

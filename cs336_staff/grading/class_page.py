"""Count for a class report: grades, tests that pass, findings and which of them go together; and sum it up in words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor
from statistics import fmean, median
from typing import Self

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome
from cs336_staff.grading.feedback import by_function
from cs336_staff.grading.gradebook import Grading
from cs336_staff.grading.grades import Grade

THINK, READ = "  Think: ", "  Read:  "
STEPS = (0.5, 1, 2, 5, 10, 20, 50, 100)
MOST_BARS = 24
TOGETHER = 3  # submissions with both findings, and times as many as chance would give: fewer mean nothing
MOST_PAIRS = 20
ABLE = 0.75  # of the submissions, for the class to be able to do something
LONGEST = 240  # of a quotation


@dataclass(frozen=True)
class Finding:
    """An explanation of an examination in its parts.

    Args:
        problem: the id of the problem.
        id: which fact it is.
        first: its first line.
        said: what was measured, and what that says about the code.
        code: the student's own lines, where something raised.
        question: what a tutor would ask.
        read: where it is explained: "docs/assignment.md, section 3 Attention".
        tests: which of those that fail it explains.
    """

    problem: str
    id: str
    first: str
    said: tuple[str, ...]
    code: tuple[str, ...]
    question: str
    read: str
    tests: tuple[str, ...]

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Take the lines apart; the reference is the last one that looks like it, whatever the student's look like."""
        end = max((i + 1 for i, line in enumerate(explanation.lines) if line.startswith(READ)), default=None)
        lines, tests = list(explanation.lines[:end]), explanation.lines[end:] if end else ()
        read = lines.pop().removeprefix(READ) if lines and lines[-1].startswith(READ) else ""
        question = lines.pop().removeprefix(THINK) if lines and lines[-1].startswith(THINK) else ""
        said = tuple(line for line in lines if not line.startswith("  "))
        code = tuple(line.removeprefix("  ") for line in lines if line.startswith("  "))
        return cls(explanation.problem, explanation.id, explanation.lines[0], said, code, question, read, tests)

    @property
    def short(self) -> str:
        """Say what it means for the code; where numbers say it, give those."""
        return self.said[-1] if self.said else self.id

    @property
    def runs(self) -> bool:
        """Tell whether any call works: if none does, nothing was measured that could be taught."""
        return not self.id.endswith("-fails")

    @property
    def section(self) -> str:
        """Number and title: "3 Attention"."""
        return self.read.partition(", section ")[2]


@dataclass(frozen=True)
class Entry:
    """One submission of the class.

    Args:
        grading: the attempt that counts, without texts.
        grades: those of its students, several in a group.
    """

    grading: Grading
    grades: tuple[Grade, ...]

    @property
    def id(self) -> str:
        """Its name, and that of its page."""
        return self.grading.submission

    @property
    def names(self) -> list[str]:
        return [grade.student.name or grade.student.key for grade in self.grades]

    @property
    def refused(self) -> bool:
        return bool(self.grading.notes.refused)

    @property
    def final(self) -> list[float]:
        """Grades after the penalty: a group has several where its members have deadlines of their own."""
        return sorted({round(grade.points, 9) for grade in self.grades})

    @property
    def violations(self) -> int:
        return sum(result.outcome is Outcome.VIOLATION for result in self.grading.results)

    @property
    def accused(self) -> bool:
        """Tell whether the rules are broken, also where staff have overruled that."""
        return bool(self.violations or self.grading.notes.forbidden)

    @property
    def not_run(self) -> bool:
        """Tell whether a test is newer than its grading."""
        return any(result.outcome is Outcome.NOT_RUN for result in self.grading.results)

    @property
    def findings(self) -> list[Finding]:
        return [Finding.of(explanation) for explanation in self.grading.notes.explanations]

    def solves(self, problem: Problem) -> bool:
        return all(result.passed for result in self.grading.results_of(problem.id))

    def wrote(self, problem: Problem) -> bool:
        return any(result.check is not Check.NOT_WRITTEN for result in self.grading.results_of(problem.id))


def group_by_submission(found: Iterable[Grade]) -> list[Entry]:
    """Put the students of one submission together, by its name."""
    together: dict[str, list[Grade]] = {}
    for grade in found:
        together.setdefault(grade.grading.submission, []).append(grade)
    return [Entry(grades[0].grading, tuple(grades)) for _, grades in sorted(together.items())]


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
class FindingOfClass:
    """A finding, an example of it, and the submissions that have it."""

    finding: Finding
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Pair:
    """Two findings that many submissions have both of; `times` is how often, compared with chance."""

    one: FindingOfClass
    other: FindingOfClass
    both: int
    times: float


def distribute_grades(entries: Iterable[Entry]) -> Grades:
    """Count the grades of all students, in steps of a round number of points from 0 to the most that anyone has."""
    points = [grade.points for entry in entries for grade in entry.grades]
    most = max(*points, *(entry.grading.maximum for entry in entries), 0)
    step = next((step for step in STEPS if most / step <= MOST_BARS), STEPS[-1])
    last = max(0, -floor(-most / step) - 1)
    counts = Counter(min(last, max(0, floor(point / step))) for point in points)
    bars = [Bar(number * step, (number + 1) * step, counts[number]) for number in range(last + 1)]
    return Grades(bars, median(points), fmean(points), min(points), max(points))


def measure_passing(entries: Sequence[Entry], problem: Problem) -> list[Passing]:
    """Average over the submissions, for each test function of a problem, public ones first.

    Of a bonus problem, those that have not written it do not count.
    """
    cases: dict[tuple[bool, str], list[float]] = {}
    for entry in entries:
        if entry.wrote(problem) or not problem.bonus:
            for function, results in by_function(entry.grading.results_of(problem.id)).items():
                passed = [result.passed for result in results]
                cases.setdefault((results[0].hidden, function), []).append(fmean(passed))
    return [
        Passing(function, hidden, fmean(shares), shares.count(1))
        for (hidden, function), shares in sorted(cases.items())
    ]


def count_findings(entries: Iterable[Entry]) -> list[FindingOfClass]:
    """List what the examinations found, the commonest first."""
    found: dict[tuple[str, str], tuple[Finding, list[Entry]]] = {}
    for entry in entries:
        for finding in entry.findings:
            found.setdefault((finding.problem, finding.id), (finding, []))[1].append(entry)
    return sorted((FindingOfClass(*each) for each in found.values()), key=lambda each: -len(each.entries))


def pair_findings(found: Sequence[FindingOfClass], submissions: int) -> list[Pair]:
    """List the pairs of findings that are found together more often than chance would have it, the strongest first."""
    found = [each for each in found if each.finding.runs and len(each.entries) >= TOGETHER]
    have = [(each, {entry.id for entry in each.entries}) for each in found]
    pairs = [
        Pair(one, other, both, both * submissions / (len(first) * len(second)))
        for (one, first), (other, second) in combinations(have, 2)
        if (both := len(first & second)) >= TOGETHER
    ]
    pairs = [pair for pair in pairs if pair.times >= TOGETHER]
    return sorted(pairs, key=lambda pair: (-pair.both, -pair.times))[:MOST_PAIRS]


# The three sentences that the page opens with: what the class can do, what it cannot, and what to teach next.


def sum_up(entries: Sequence[Entry], problems: Iterable[Problem]) -> tuple[str, str, str]:
    """Say it of the submissions that were run, in the problems that are not bonus."""
    ran = [entry for entry in entries if not entry.refused]
    core = [problem for problem in problems if not problem.bonus]
    if not ran:
        nothing = "None of the submissions was run" if len(entries) > 1 else "The only submission was not run"
        return (
            f"{nothing}, so nothing is known yet about what the class can do.",
            "What it cannot do is not known either.",
            "Find out why before you teach anything: the reasons are below.",
        )
    solved = {problem.id: sum(entry.solves(problem) for entry in ran) for problem in core}
    return _can(ran, core, solved), _cannot(ran, core, solved), _next(ran, core, solved)


def _can(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    if all(solved[problem.id] == n for problem in core):
        return f"{_all(n)} every test of every problem."
    able = [problem for problem in core if solved[problem.id] >= ABLE * n]
    if able and n == 1:
        return f"The only submission passes every test of {_and(able)}."
    if able:
        least = min(solved[problem.id] for problem in able)
        whole = "The whole class" if least == n else "Most of the class"
        at_least = "at least " * (len(able) > 1 and least < n)
        each = "each" if len(able) > 1 else "it"
        return f"{whole} can write {_and(able)}: {at_least}{_of(least, n)} pass every test of {each}."
    best = max(core, key=lambda problem: solved[problem.id])
    if not solved[best.id]:
        who = "No submission passes" if n > 1 else "The only submission does not pass"
        return f"{who} every test of any problem yet."
    passes = "pass" if solved[best.id] > 1 else "passes"
    return (
        f"No problem is solved by three quarters of the class yet; {_title(best)} comes closest, where "
        f"{_of(solved[best.id], n)} {passes} every test."
    )


def _cannot(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    failing = [problem for problem in core if solved[problem.id] < n]
    if not failing:
        return "Nothing is left that anyone fails at." if n > 1 else "Nothing is left that it fails at."

    def share(problem: Problem) -> float:
        return sum(entry.grading.points_of(problem.id) for entry in ran) / problem.points

    worst = min(failing, key=lambda problem: (solved[problem.id], share(problem)))
    without = n - solved[worst.id]
    unwritten = sum(not entry.wrote(worst) for entry in ran)
    if n == 1:
        return f"It has not written {_title(worst)}." if unwritten else f"It fails tests of {_title(worst)}."
    which = {0: "", without: ", since they have not written it" if without > 1 else ", which has not written it"}
    some = f", and {unwritten} of them {'have' if unwritten > 1 else 'has'} not written it"
    unwritten_too = which.get(unwritten, some)
    if without == n:
        return f"Nobody can write {_title(worst)} yet: {_of(without, n)} fail tests of it{unwritten_too}."
    fail = f"{_of(without, n)} {'fail' if without > 1 else 'fails'} tests of it{unwritten_too}"
    if without > (1 - ABLE) * n:
        return f"What many cannot write yet is {_title(worst)}: {fail}."
    return f"The hardest problem is {_title(worst)}: {fail}."


def _next(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    worst = min(core, key=lambda problem: solved[problem.id])
    without = n - solved[worst.id]
    if not without:
        return "Nothing needs teaching again: go on to what comes next."
    graded = {problem.id for problem in core}
    mistakes = [
        each
        for each in count_findings(ran)
        if each.finding.problem in graded and each.finding.section and each.finding.runs
    ]
    have_one: dict[str, set[str]] = {}
    for each in mistakes:
        have_one.setdefault(each.finding.section, set()).update(entry.id for entry in each.entries)
    section = max(have_one, key=lambda section: len(have_one[section]), default="")
    have = len(have_one.get(section, ()))
    unwritten = {problem.id: sum(not entry.wrote(problem) for entry in ran) for problem in core}
    least = max(core, key=lambda problem: unwritten[problem.id])
    if unwritten[least.id] > have:
        many = unwritten[least.id]
        return f"Teach {_title(least)} next: {_of(many, n)} {'have' if many > 1 else 'has'} not written it."
    if not have:
        return f"Teach {_title(worst)} next; the examinations found no mistake that explains why its tests fail."
    commonest = next(each for each in mistakes if each.finding.section == section)
    times, short = len(commonest.entries), commonest.finding.short
    number, _, title = section.partition(" ")
    quoted = short if len(short) <= LONGEST else short[:LONGEST] + "…"
    teach = f"Teach section {number} of the handout next, “{title}”:"
    if n == 1 or have == 1:
        return f"{teach} one submission has a mistake in it: “{quoted}”"
    how_often = f"in {times} of them" if times > 1 else "for example"
    return f"{teach} {_of(have, n)} have a mistake in it, {how_often} “{quoted}”"


def _all(n: int) -> str:
    return "The only submission passes" if n == 1 else f"All {n} submissions pass"


def _of(k: int, n: int) -> str:
    return f"all {n} submissions" if k == n else f"{k} of {n} submissions"


def _and(problems: Sequence[Problem]) -> str:
    *others, last = map(_title, problems)
    return f"{', '.join(others)} and {last}" if others else last


def _title(problem: Problem) -> str:
    """Its title inside a sentence: "softmax", but "RoPE"."""
    first, space, rest = problem.title.partition(" ")
    return (first.lower() if first[1:].islower() else first) + space + rest

"""Count for a class report: grades, tests that pass, findings and what they cost; and sum it up in words."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, fsum
from statistics import fmean, median
from typing import Self

from cs336_kit.engine.assignment import Problem, find_needs
from cs336_kit.engine.result import Check, Explanation, Outcome
from cs336_staff.grading.feedback import by_function, error_of
from cs336_staff.grading.gradebook import Grading
from cs336_staff.grading.grades import Grade

THINK, READ = "  Think: ", "  Read:  "
STEPS = (0.5, 1, 2, 5, 10, 20, 50, 100)
MOST_BARS = 24
ABLE = 0.9  # of the points of a problem, for a submission to be able to do it
MOST = 0.75  # of the submissions, for the class to be able to
LONGEST = 240  # of a quotation
POINTING = re.compile("(That|This|It|They|These|Those) ")  # the subject is in the sentence before
LITTLE = 0.005  # points: less is rounding
ASIDE = "A program that is right but for this mistake "


@dataclass(frozen=True)
class Finding:
    """An explanation of an examination in its parts.

    Args:
        problem: the id of the problem.
        id: which fact it is.
        said: what was measured, and what that says about the code.
        code: the student's own lines, where something raised.
        question: what a tutor would ask.
        read: where it is explained: "docs/assignment.md, section 3 Attention".
        tests: which of those that fail it explains.
    """

    problem: str
    id: str
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
        return cls(explanation.problem, explanation.id, said, code, question, read, tests)

    @property
    def short(self) -> str:
        """Say what it means for the code in a sentence, with the one before it where that has the subject."""
        said = [each for line in self.said for each in re.split(r"(?<=[.?!]) (?=[A-Z])", line)]
        said = [each for each in said if not each.startswith(ASIDE)]
        means = next((i for i, each in enumerate(said) if self.said[-1].startswith(each)), 0)
        first = means
        while first and POINTING.match(said[first]):
            first -= 1
        return " ".join(said[first : means + 1]) or self.id

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
    def meddled(self) -> int:
        """The tests to which something other than the sandbox's own code wrote the answer."""
        return sum(result.outcome is Outcome.VIOLATION for result in self.grading.results)

    @property
    def accused(self) -> bool:
        """Tell whether the rules are broken, also where staff have overruled that."""
        return bool(self.meddled or self.grading.violations)

    @property
    def not_run(self) -> bool:
        """Tell whether a test is newer than its grading."""
        return any(result.outcome is Outcome.NOT_RUN for result in self.grading.results)

    def can(self, problem: Problem) -> bool:
        """Tell whether it has most points of a problem: a corner may be wrong."""
        return self.grading.points_of(problem.id) >= ABLE * problem.points

    def costs(self) -> list[float]:
        """The points that each explanation costs; what several explain they share, and so do those that name no test.

        What a program loses though none of them explains it, is nobody's.
        """
        told = self.grading.notes.explanations
        costs = [0.0] * len(told)
        for result in self.grading.results:
            if result.is_wrong:
                own = [i for i, each in enumerate(told) if each.problem == result.problem]
                explained = [i for i in own if result.test in told[i].tests]
                blamed = explained or [i for i in own if not told[i].tests]
                for i in blamed:
                    costs[i] += result.maximum / len(blamed)
        return costs

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


@dataclass
class FindingOfClass:
    """A finding, an example of it, and what it costs the class.

    Args:
        finding: where it was found first.
        entries: the submissions that have it.
        lost: the points that it costs them in problems that are not bonus.
        bonus: the points in the others.
        later: the problems that build on its own in which it comes back.
    """

    finding: Finding
    entries: list[Entry] = field(default_factory=list)
    lost: float = 0.0
    bonus: float = 0.0
    later: dict[str, str] = field(default_factory=dict)


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


def count_findings(entries: Iterable[Entry], problems: Mapping[str, Problem]) -> list[FindingOfClass]:
    """List what the examinations found, what costs the class most first; what has one root is one finding."""
    found: dict[tuple[str, str], FindingOfClass] = {}
    for entry in entries:
        roots: list[Explanation] = []
        for told, cost in zip(entry.grading.notes.explanations, entry.costs(), strict=True):
            if told.problem not in problems:
                continue
            root = next((each for each in reversed(roots) if _is_root(each, told, problems)), told)
            one = found.setdefault((root.problem, root.id), FindingOfClass(Finding.of(root)))
            if root is told:
                roots.append(told)
                one.entries.append(entry)
            elif told.problem != root.problem:
                one.later[told.problem] = problems[told.problem].title
            if problems[told.problem].bonus:
                one.bonus += cost
            else:
                one.lost += cost
    return sorted(found.values(), key=lambda each: (-round(each.lost, 9), -each.bonus, -len(each.entries)))


def _is_root(root: Explanation, told: Explanation, problems: Mapping[str, Problem]) -> bool:
    """Tell whether what is told has been told of an earlier problem: the same exception, or the same of what it needs.

    The ids of findings that say the same of two problems differ in their first word.
    """
    if error := error_of(told):
        return error_of(root) == error
    same = told.is_of_earlier or root.id.partition("-")[2] == told.id.partition("-")[2]
    return same and root.problem in find_needs(problems, told.problem)


# The three sentences that the page opens with: what the class can do, what costs it most, and what to teach next.


def sum_up(entries: Sequence[Entry], problems: Mapping[str, Problem]) -> tuple[str, str, str]:
    """Say it of the submissions that were run, in the problems that are not bonus."""
    ran = [entry for entry in entries if not entry.refused]
    core = [problem for problem in problems.values() if not problem.bonus]
    if not ran:
        nothing = "None of the submissions was run" if len(entries) > 1 else "The only submission was not run"
        return (
            f"{nothing}, so nothing is known yet about what the class can do.",
            "Nor is it known what it cannot do.",
            "Find out why before you teach anything: the reasons are below.",
        )
    lost = {problem.id: fsum(problem.points - each.grading.points_of(problem.id) for each in ran) for problem in core}
    return _can(ran, core), _cannot(ran, core, lost), _next(ran, core, lost, problems)


def _can(ran: Sequence[Entry], core: Sequence[Problem]) -> str:
    able = {problem.id: sum(entry.can(problem) for entry in ran) for problem in core}
    written = [problem for problem in core if able[problem.id] >= MOST * len(ran)]
    share = f"{100 * ABLE:g} % of the points or more in"
    if not written:
        best = max(core, key=lambda problem: able[problem.id])
        nearest = f"{_title(best, True)} comes closest: {share} {_of(able[best.id], ran)}."
        return f"The class cannot write any problem yet. {nearest if able[best.id] else ''}".rstrip()
    least = min(able[problem.id] for problem in written)
    at_least = "at least " * (len({able[problem.id] for problem in written}) > 1)
    return f"The class can write {_and(written)}: {share} {at_least}{_of(least, ran)}."


def _cannot(ran: Sequence[Entry], core: Sequence[Problem], lost: Mapping[str, float]) -> str:
    worst = max(core, key=lambda problem: lost[problem.id])
    if lost[worst.id] < LITTLE:
        return "Nobody loses a point."
    losing = sum(entry.grading.points_of(worst.id) < worst.points - LITTLE for entry in ran)
    unwritten = sum(not entry.wrote(worst) for entry in ran)
    which = f", of which {unwritten} did not write it" if unwritten else ""
    points = f"{lost[worst.id]:.1f} of the {fsum(lost.values()):.1f} points that are lost in all"
    return f"{_title(worst, True)} costs the class most: {points}, by {_of(losing, ran)}{which}."


def _next(
    ran: Sequence[Entry], core: Sequence[Problem], lost: Mapping[str, float], problems: Mapping[str, Problem]
) -> str:
    if max(lost.values()) < LITTLE:
        return "Nothing needs teaching again: go on to what comes next."
    sections: dict[str, list[FindingOfClass]] = {}
    for each in count_findings(ran, problems):
        if each.finding.section and each.finding.runs and each.lost:
            sections.setdefault(each.finding.section, []).append(each)
    unwritten = {problem.id: fsum(problem.points for entry in ran if not entry.wrote(problem)) for problem in core}
    least = max(core, key=lambda problem: unwritten[problem.id])
    section = max(sections, key=lambda section: fsum(each.lost for each in sections[section]), default="")
    mistakes = sections.get(section, [])
    cost = fsum(each.lost for each in mistakes)
    if unwritten[least.id] > cost:
        return f"Teach {_title(least)} next: {_of(sum(not entry.wrote(least) for entry in ran), ran)} did not write it."
    if not mistakes:
        worst = max(core, key=lambda problem: lost[problem.id])
        return f"Teach {_title(worst)} next; the examinations found no mistake that explains why its tests fail."
    first, (number, _, title) = mistakes[0], section.partition(" ")
    short = first.finding.short
    quoted = short if len(short) <= LONGEST else short[:LONGEST] + "…"
    have = len({entry.id for each in mistakes for entry in each.entries})
    most = f", {first.lost:.1f} of them this" if len(mistakes) > 1 else ""
    return (
        f"Teach section {number} of the handout next, “{title}”: mistakes in it cost {_of(have, ran)} "
        f"{cost:.1f} points{most}: “{quoted}”"
    )


def _of(k: int, ran: Sequence[Entry]) -> str:
    if len(ran) == 1:
        return "the only submission" if k else "no submission"
    return f"all {k} submissions" if k == len(ran) else f"{k} of {len(ran)} submissions"


def _and(problems: Sequence[Problem]) -> str:
    *others, last = map(_title, problems)
    return f"{', '.join(others)} and {last}" if others else last


def _title(problem: Problem, first: bool = False) -> str:
    """Its title inside a sentence, or as its `first` words: "softmax", but "RoPE"."""
    word = problem.title.partition(" ")[0]
    return problem.title if first or not word[1:].islower() else problem.title[0].lower() + problem.title[1:]

"""Count for a class report: findings, and what they cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cs336_kit.engine.assignment import Problem, find_needs
from cs336_kit.engine.result import Check, Explanation, Outcome
from cs336_staff.grading.finding import Finding
from cs336_staff.grading.grades import Grade
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.sections import error_of

ABLE = 0.9  # of the points of a problem, for a submission to be able to do it


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

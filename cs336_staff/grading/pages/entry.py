"""One submission of a class as the pages show it: who handed it in, and what an examination told about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_staff.grading.exports import Grade
from cs336_staff.grading.gradebook import Grading

THINK, READ = "  Think: ", "  Read:  "


@dataclass(frozen=True)
class Told:
    """An explanation in its parts.

    Args:
        problem: the id of the problem.
        id: which fact it is.
        said: what was measured, and what that says about the code.
        code: the student's own lines, where something raised.
        question: what a tutor would ask.
        read: where it is explained: "docs/assignment.md, section 3 Attention".
    """

    problem: str
    id: str
    said: tuple[str, ...]
    code: tuple[str, ...]
    question: str
    read: str

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Take the lines apart; question and reference are the last ones, whatever the student's lines look like."""
        lines = list(explanation.lines)
        read = lines.pop().removeprefix(READ) if lines and lines[-1].startswith(READ) else ""
        question = lines.pop().removeprefix(THINK) if lines and lines[-1].startswith(THINK) else ""
        said = tuple(line for line in lines if not line.startswith("  "))
        code = tuple(line.removeprefix("  ") for line in lines if line.startswith("  "))
        return cls(explanation.problem, explanation.id, said, code, question, read)

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
    """One submission.

    Args:
        id: its name, and that of its page.
        grading: the attempt that counts, without texts.
        grades: those of its students, several in a group.
        names: of its students.
    """

    id: str
    grading: Grading
    grades: tuple[Grade, ...]
    names: tuple[str, ...]

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
    def told(self) -> list[Told]:
        return [Told.of(explanation) for explanation in self.grading.notes.explanations]

    def of(self, problem: Problem) -> list[Result]:
        return [result for result in self.grading.results if result.problem == problem.id]

    def points(self, problem: Problem) -> float:
        return self.grading.points_of(problem.id)

    def solves(self, problem: Problem) -> bool:
        return all(result.passed for result in self.of(problem))

    def wrote(self, problem: Problem) -> bool:
        return any(result.check is not Check.NOT_WRITTEN for result in self.of(problem))


def entries_of(found: Iterable[Grade]) -> list[Entry]:
    """Put the students of one submission together, by its name."""
    together: dict[str, list[Grade]] = {}
    for grade in found:
        together.setdefault(grade.grading.submission, []).append(grade)
    return [
        Entry(id, grades[0].grading, tuple(grades), tuple(each.student.name or each.student.key for each in grades))
        for id, grades in sorted(together.items())
    ]

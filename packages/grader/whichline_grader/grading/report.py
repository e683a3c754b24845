"""The report on one submission: one record, which the feedback, results.json and the pages show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from whichline.engine.assignment import Problem
from whichline_grader.grading.deductions import Deduction, Kind, divide_deductions, is_unwritten
from whichline_grader.grading.final_grades import Grade
from whichline_grader.grading.graded import Grading
from whichline_grader.sandbox.printable import printable

MAX_MESSAGE = 4_000


class Row(NamedTuple):
    """The points of a problem, and how many of its tests pass."""

    problem: Problem
    title: str
    points: float
    state: str

    @property
    def is_full(self) -> bool:
        return self.points > self.problem.points - 0.005


@dataclass(frozen=True)
class Report:
    """Everything that is told about one submission."""

    grading: Grading  # the submission, with the texts of its results
    problems: Mapping[str, Problem]  # the problems of the assignment, by id
    grades: Sequence[Grade] = ()  # those of its students, if they are known

    @property
    def points(self) -> str:
        """The grade, or the points while no grade is known, of all that there are."""
        left = sorted({f"{each.points:.2f}" for each in self.grades}) or [f"{self.grading.points:.2f}"]
        return f"{' / '.join(left)} of {self.grading.maximum:g} points"

    @property
    def account(self) -> list[tuple[str, str]]:
        """Give what lateness costs, and the grade: in words and in points; by name where members of a group differ."""
        alike: dict[tuple[str, float, str], list[Grade]] = {}
        for each in self.grades:
            alike.setdefault((each.lateness, each.penalty, each.instead), []).append(each)
        lines = []
        for (lateness, penalty, instead), together in alike.items():
            who = " and ".join(each.student.name or each.student.key for each in together)
            who, grade = f" of {who}" if len(alike) > 1 else "", together[0]
            if lateness:
                lines.append((f"Lateness{who}: {lateness}", f"{0 - penalty:.2f}"))
            counts = f", if {instead} did not count" if instead else ""
            lines.append((f"Grade{who}{counts}", f"{grade.points:.2f} / {grade.grading.maximum:g}"))
        return lines

    @cached_property
    def rows(self) -> list[Row]:
        """The points of each problem: what its tests earned, less what it pays, and what staff adjusted."""
        return [self._add_up(problem) for problem in self.problems.values()]

    def _add_up(self, problem: Problem) -> Row:
        results = self.grading.list_results(problem.id)
        passed = f"{[each.passed for each in results].count(True)} / {len(results)}"
        state = "not written" if is_unwritten(results) else passed
        return Row(problem, problem.title + " (bonus)" * problem.bonus, self.grading.compute_points(problem.id), state)

    @cached_property
    def deductions(self) -> list[Deduction]:
        return divide_deductions(self.grading, self.problems)

    @property
    def rule_breaks(self) -> list[str]:
        """List what each problem pays for work that is not the student's own, with the lines of code."""
        own = [each.finding for each in self.deductions if each.kind is Kind.NOT_OWN]
        lines = {finding.problem: "\n".join(finding.said) for finding in own}
        return [lines[problem] for problem in self.grading.rule_deductions]

    @property
    def remarks(self) -> Iterator[str]:
        notes = self.grading.notes
        if notes.refused:
            yield f"The submission was not run: {notes.refused}"
        yield from self.grading.decisions
        if notes.missing:
            lacks = f"Your code imports {', '.join(notes.missing)}: your submission has no such file"
            costs = "That costs nothing as long as no graded function needs it."
            yield f"{lacks}, and the grader has no such package. {costs}"
        yield from notes.taken_in

    @property
    def printed(self) -> Iterator[str]:
        """Give the text that the submission wrote to each of its streams, under a line that says so."""
        for stream, text in (("stdout", self.grading.notes.stdout), ("stderr", self.grading.notes.stderr)):
            if text:
                yield f"Your code wrote to {stream} during the public tests:\n{text}"


def make_printable(message: str) -> str:
    """The message as it can be printed anywhere, cut off where it is too long to be read."""
    text = printable(message[: MAX_MESSAGE + 1])
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "\n(cut off)"

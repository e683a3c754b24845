"""Tell students their points, what concerns the submission as a whole, and what their code printed."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.losses import is_unwritten


class Row(NamedTuple):
    """The points of a problem, and how many of its tests pass."""

    problem: Problem
    title: str
    points: float
    state: str

    @property
    def is_full(self) -> bool:
        return self.points > self.problem.points - 0.005


def tabulate(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[Row]:
    """Give the points of each problem: what its tests earned, less what it pays, and what staff adjusted."""
    for problem in problems.values():
        results = grading.results_of(problem.id)
        passed = f"{sum(result.passed for result in results)} / {len(results)}"
        state = "not written" if is_unwritten(results) else passed
        yield Row(problem, problem.title + " (bonus)" * problem.bonus, grading.points_of(problem.id), state)


def remarks(grading: Grading) -> Iterator[str]:
    """Say what concerns the submission as a whole."""
    notes = grading.notes
    if notes.refused:
        yield f"The submission was not run: {notes.refused}"
    yield from grading.decisions
    if notes.missing:
        yield (
            f"Your code imports {', '.join(notes.missing)}: your submission has no such file, and the grader "
            "has no such package. That costs nothing as long as no graded function needs it."
        )
    yield from notes.taken_in


def printed(grading: Grading) -> Iterator[str]:
    """Give what the submission has written to its streams, each under a line that says so."""
    for stream, text in (("stdout", grading.notes.stdout), ("stderr", grading.notes.stderr)):
        if text:
            yield f"Your code wrote to {stream} during the public tests:\n{text}"

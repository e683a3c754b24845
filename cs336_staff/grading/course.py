"""From the gradebook to grades: what is known about the students, and the files that are written from it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cs336_staff.grading.exports import Attempt, Grade, grades, read_groups, read_roster, write_canvas, write_grades
from cs336_staff.grading.gradebook import Gradebook


@dataclass(frozen=True)
class Course:
    """What is known about the students: how attempts, groups and late days become grades."""

    attempt: Attempt
    due: datetime | None
    groups: Path | None
    roster: Path | None
    column: str

    def check(self) -> None:
        """Raise RosterError or OSError if a list cannot be read: now, and not when everything is graded."""
        if self.groups:
            read_groups(self.groups)
        if self.roster:
            read_roster(self.roster)

    def as_options(self) -> dict[str, Any]:
        """As the gradebook keeps it, so that grades can be written again."""
        paths = {
            name: path and str(path.resolve()) for name, path in (("groups", self.groups), ("roster", self.roster))
        }
        return asdict(self) | {"due": self.due and self.due.isoformat()} | paths


def course_from_options(options: dict[str, Any]) -> Course:
    """The course that `Course.as_options` wrote."""
    due, groups, roster = options["due"], options["groups"], options["roster"]
    return Course(
        options["attempt"],
        due and datetime.fromisoformat(due),
        groups and Path(groups),
        roster and Path(roster),
        options["column"],
    )


def write_course(
    console: Console, gradebook: Gradebook, problems: Sequence[str], out: Path, course: Course
) -> list[Grade]:
    """Write grades.csv, and canvas.csv if there is a roster; print who has no partner.

    Returns:
        The grade of each student.

    Raises:
        RosterError: the roster or the list of groups cannot be used.
    """
    groups = read_groups(course.groups) if course.groups else None
    found = grades(gradebook, course.attempt, groups)
    write_grades(out / "grades.csv", found, problems, course.due)
    if course.roster:
        without, strangers = write_canvas(out / "canvas.csv", course.roster, found, course.column)
        for name in without:
            console.print(Text(f"In the roster, without a grade: {name}", "yellow"))
        for name in strangers:
            console.print(Text(f"Graded, not in the roster: {name}", "yellow"))
    return found

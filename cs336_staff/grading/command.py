"""`cs336 staff grade`: from paths on the command line to reports, the gradebook and the exit status."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.text import Text

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading import batch, show
from cs336_staff.grading.class_misconceptions import FILE_NAME, count_mistakes, mistakes_table, write_mistakes
from cs336_staff.grading.exports import (
    Attempt,
    Grade,
    RosterError,
    grades,
    read_groups,
    read_roster,
    write_canvas,
    write_grades,
)
from cs336_staff.grading.gradebook import Gradebook, GradebookError
from cs336_staff.grading.plan import SuiteError
from cs336_staff.grading.suite import Suite, with_suite
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.sandbox.confinement import Layer, SandboxError

FAULTS = 3
COMMONEST = 10  # misconceptions that are printed; the file has all


@dataclass(frozen=True)
class Class:
    """What is known about the students: how attempts, groups and late days become grades."""

    attempt: Attempt
    due: datetime | None
    groups: Path | None
    roster: Path | None
    column: str

    def options(self) -> dict[str, Any]:
        """As the gradebook keeps it, so that grades can be written again."""
        paths = {
            name: path and str(path.resolve()) for name, path in (("groups", self.groups), ("roster", self.roster))
        }
        return asdict(self) | {"due": self.due and self.due.isoformat()} | paths

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Class":
        due, groups, roster = options["due"], options["groups"], options["roster"]
        return cls(
            options["attempt"],
            due and datetime.fromisoformat(due),
            groups and Path(groups),
            roster and Path(roster),
            options["column"],
        )


def grade(
    paths: Sequence[Path], out: Path, layer: Layer | Literal["auto"], jobs: int, rerun: bool, course: Class
) -> int:
    """Grade, write every report, print the board; the exit status is 3 if something of ours went wrong."""
    console = Console()
    status = 0

    def use(suite: Suite) -> None:
        nonlocal status
        with sandbox.start(layer) as box:
            _say_layer(console, box)
            with show.progress_bar(console) as progress:
                done = batch.grade(suite, box, paths, out, jobs, rerun, show=progress)
        with Gradebook(out / "gradebook.sqlite") as gradebook:
            gradebook.course = course.options()
            names = set(done.names)
            graded = [grading for grading in gradebook.latest(texts=False) if grading.submission in names]
            if len(graded) == 1:
                console.print(show.board(graded[0], suite.problems))
            else:
                console.print(show.boards(graded, suite.problems))
            for line in show.findings(graded):
                console.print(Text(line, "yellow"))
            for fault in done.faults:
                blame = "NOT GRADED, by no fault of the submission"
                console.print(Text(f"{blame}: {fault.submission}: {fault.reason}", "red"))
            found = write_class(console, gradebook, list(suite.problems), out, course)
            _write_misconceptions(console, suite, out, found)
        console.print(Text(f"Reports, gradebook and grades are in {out}"))
        status = FAULTS if done.faults else 0

    try:
        if course.groups:
            read_groups(course.groups)  # now, and not when everything is graded
        if course.roster:
            read_roster(course.roster)
        with_suite(find_root(Path.cwd()), use)
    except (SuiteError, SandboxError, GradebookError, RosterError, batch.BatchError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error}; what is in {out} is whole, run the same command to go on") from None
    return status


def _say_layer(console: Console, box: sandbox.Sandbox) -> None:
    achieved = box.achieved
    console.print(Text(f"Sandbox: {achieved.layer} ({', '.join(achieved.parts) or 'nothing'})"))
    for note in achieved.notes:
        console.print(Text(f"  {note}", "yellow"))


def write_class(console: Console, gradebook: Gradebook, problems: list[str], out: Path, course: Class) -> list[Grade]:
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


def _write_misconceptions(console: Console, suite: Suite, out: Path, found: list[Grade]) -> None:
    counts = count_mistakes(found)
    write_mistakes(out / FILE_NAME, counts, suite.known)
    if counts and len(found) > 1:
        console.print(mistakes_table(counts, suite.known, COMMONEST))

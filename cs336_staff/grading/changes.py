"""`cs336 staff rescore` and `diff`: recorded results with other weights, and whose grade changed and why."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import fsum
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_staff.grading.course import Course, find_checked_root, load_course
from cs336_staff.grading.exports import Grade, RosterError, grades, write_course
from cs336_staff.grading.gradebook import Gradebook, GradebookError, Grading
from cs336_staff.grading.report import write_all_reports
from cs336_staff.hidden.release import load_graded_problems
from cs336_staff.sandbox.printable import printable

RESULTS = click.Path(exists=True, file_okay=False, path_type=Path)
SHOWN = 2  # names of tests
SAID = ("name", "email", "submission", "attempts", "points", "grade", "notes")  # columns that give no reason


@dataclass(frozen=True)
class Published:
    """A folder of results, by student: the row of grades.csv, and the grading that it was made from."""

    rows: Mapping[str, Mapping[str, str]]
    grades: Mapping[str, Grade]


@click.command()
@click.option("--out", type=RESULTS, default=Path("results"), show_default=True)
def rescore(out: Path) -> None:
    """Score the results recorded in a folder again: with the current weights and the current course.toml.

    Nothing is run. The students whose grades change are printed.
    """
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    try:
        with Gradebook.of_results(out) as gradebook:
            before = _published(out, gradebook, course)
            gradebook.score_with(problems)
            write_all_reports(out, gradebook, problems)
            found = write_course(Console(), gradebook, problems, out, course)
            _print(before, _published(out, gradebook, course))
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{len(found)} grades scored with the present weights, in {out}")


@click.command()
@click.argument("old", type=RESULTS)
@click.argument("new", type=RESULTS)
def diff(old: Path, new: Path) -> None:
    """Say whose grade changed between two folders of results, OLD and NEW, and why."""
    course = load_course(find_checked_root())
    try:
        with Gradebook.of_results(old) as one, Gradebook.of_results(new) as other:
            _print(_published(old, one, course), _published(new, other, course))
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _published(out: Path, gradebook: Gradebook, course: Course) -> Published:
    path = out / "grades.csv"
    if not path.exists():
        raise GradebookError(f"no grades.csv in {out}; run cs336 staff grade to its end first")
    with path.open(newline="", encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    return Published(rows, {grade.student.key: grade for grade in grades(gradebook, course)})


def _print(old: Published, new: Published) -> None:
    table = Table("Student", "Before", "Now", "Why", title="Whose grade changed")
    for student in sorted(old.rows.keys() | new.rows.keys()):
        before, now = (each.rows.get(student, {}).get("grade", "none") for each in (old, new))
        if before != now:
            table.add_row(Text(printable(student)), before, now, Text("\n".join(changes(old, new, student))))
    if table.row_count:
        Console().print(table)
    else:
        click.echo("No grade changed")


def changes(old: Published, new: Published, student: str) -> Iterator[str]:
    """Give each reason why the grade of a student has changed, in a line."""
    one, other = old.rows.get(student), new.rows.get(student)
    if one is None or other is None:
        yield "graded for the first time" if one is None else "graded no more"
        return
    if student in old.grades and student in new.grades:
        yield from _of_gradings(old.grades[student].grading, new.grades[student].grading)
    for name in other:
        if name not in SAID and one.get(name) != other[name]:
            yield f"{name} {one.get(name) or 'none'} → {other[name] or 'none'}"


def _of_gradings(old: Grading, new: Grading) -> Iterator[str]:
    if old.content != new.content:
        yield "other work counts"
    outcomes = {result.test: result.outcome for result in old.results}
    turned = [each for each in new.results if outcomes.get(each.test, each.outcome) is not each.outcome]
    for passed, what in ((True, "now pass"), (False, "pass no more")):
        if tests := [each.test for each in turned if each.passed is passed]:
            more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
            yield f"{', '.join(tests[:SHOWN])}{more} {what}"
    before, now = (fsum(result.points for result in each.results) for each in (old, new))
    if not turned and old.content == new.content and before != now:
        yield "other weights"
    for problem in sorted(old.adjusted.keys() | new.adjusted.keys()):
        one, other = (each.adjusted.get(problem) for each in (old, new))
        if one != other:
            yield (
                f"{problem} adjusted by {other.points:+g}: {other.because}" if other else f"{problem} adjusted no more"
            )

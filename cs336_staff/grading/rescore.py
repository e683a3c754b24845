"""`cs336 staff rescore` and `diff`: score what is recorded, and say whose grade changed and why. Nothing is run."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import fsum
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.course import RESULTS_FOLDER, Course, find_checked_root, load_course, results_folder
from cs336_staff.grading.decisions import check_problems
from cs336_staff.grading.exports import MOST, write_course, write_table
from cs336_staff.grading.gradebook import NAME, Gradebook, GradebookError
from cs336_staff.grading.grades import grades
from cs336_staff.grading.grading import Grading
from cs336_staff.hidden.release import load_graded_problems
from cs336_staff.sandbox.printable import printable

RESULTS = click.Path(exists=True, file_okay=False, path_type=Path)
SHOWN = 2  # names of tests
SAID = ("name", "email", "submission", "attempts", "points", "grade", "notes")  # columns that give no reason

into = click.option("--out", type=RESULTS, default=results_folder, show_default=RESULTS_FOLDER)


@contextmanager
def open_results(out: Path) -> Iterator[tuple[Gradebook, Course, dict[str, Problem]]]:
    """The gradebook in a folder of results, the course and its problems, once all that staff state is checked."""
    root = find_checked_root()
    course = load_course(root)
    problems = load_graded_problems(root)
    if not (out / NAME).exists() and not any(out.glob("*/results.json")):
        raise GradebookError(f"no gradebook in {out}; name the folder that `cs336 staff grade` wrote")
    with Gradebook(out / NAME, course.muted) as gradebook:
        if not gradebook.paths():  # else all grades would be gone
            raise GradebookError(f"the gradebook in {out} is empty; grade a submission into it first")
        check_problems(out, gradebook.decisions, problems)
        yield gradebook, course, problems


@click.command()
@into
def rescore(out: Path) -> None:
    """Score the results recorded in a folder again: with the current weights and the current course.toml.

    Nothing is run. The students whose grades change are printed.
    """
    with open_results(out) as (gradebook, course, problems):
        before = _read_published(out, gradebook, course) if (out / "grades.csv").exists() else None
        gradebook.score_with(problems)
        found = write_course(Console(), gradebook, problems, out, course)
        if before:  # else the first batch was killed
            _print_changes(before, _read_published(out, gradebook, course), out)
    click.echo(f"{len(found)} grades scored with the present weights, in {out}")


@click.command()
@click.argument("old", type=RESULTS)
@click.argument("new", type=RESULTS)
def diff(old: Path, new: Path) -> None:
    """Say whose grade changed between two folders of results, OLD and NEW, and why. NEW gets changes.csv."""
    with open_results(old) as (one, course, _), open_results(new) as (other, _, _):
        _print_changes(_read_published(old, one, course), _read_published(new, other, course), new)


class Published(NamedTuple):
    """A folder of results, by student: the row of grades.csv, and the grading that it was made from."""

    rows: Mapping[str, Mapping[str, str]]
    gradings: Mapping[str, Grading]


def _read_published(out: Path, gradebook: Gradebook, course: Course) -> Published:
    path = out / "grades.csv"
    if not path.exists():
        raise GradebookError(f"no grades.csv in {out}; run cs336 staff grade to its end first")
    with path.open(newline="", encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    return Published(rows, {grade.student.key: grade.grading for grade in grades(gradebook, course)})


def _print_changes(old: Published, new: Published, out: Path) -> None:
    """Print what changed for everybody in a line, and a row for each student; all rows are in changes.csv."""
    rows: list[tuple[str, str, str, list[str]]] = []
    for student in sorted(old.rows.keys() | new.rows.keys()):
        before, now = (each.rows.get(student, {}) for each in (old, new))
        grade, other = before.get("grade", "none"), now.get("grade", "none")
        if grade != other:
            who = " ".join(dict.fromkeys(filter(None, ((now or before).get("name"), student))))
            rows.append((who, grade, other, list(_explain_change(old, new, student))))
    if not rows:
        Console().print("No grade changed")
        return
    everybody = [why for why in rows[0][3] if len(rows) > 1 and all(why in row[3] for row in rows)]
    lines = [(*row, "; ".join(why for why in reasons if why not in everybody)) for *row, reasons in rows]
    write_table(out / "changes.csv", [("student", "before", "now", "why"), *lines])
    table = Table("Student", "Before", "Now", "Why", title=f"Whose grade changed: {len(rows)} of {len(new.rows)}")
    for line in lines[:MOST]:
        table.add_row(*(Text(printable(cell)) for cell in line))
    for why in everybody:
        Console().print(Text(f"For all of them: {printable(why)}"))
    Console().print(table)
    Console().print(Text(f"All {len(rows)} are in {out / 'changes.csv'}"))


def _explain_change(old: Published, new: Published, student: str) -> Iterator[str]:
    """Give each reason why the grade of a student has changed, in a line."""
    one, other = old.rows.get(student), new.rows.get(student)
    if one is None or other is None:
        yield "graded for the first time" if one is None else "graded no more"
        return
    if student in old.gradings and student in new.gradings:
        yield from _compare(old.gradings[student], new.gradings[student])
    for name in other:
        if name not in SAID and one.get(name) != other[name]:
            yield f"{name} {one.get(name) or 'none'} → {other[name] or 'none'}"


def _compare(old: Grading, new: Grading) -> Iterator[str]:
    """Say what differs between two gradings of a student."""
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
    yield from (line for line in new.decisions if line not in old.decisions)
    yield from (f"no more {line}" for line in old.decisions if line not in new.decisions)

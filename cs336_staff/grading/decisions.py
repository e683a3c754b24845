"""`cs336 staff overrule`, `adjust`, `rescore` and `diff`: decide on grades, score them again, say what changed."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import fsum
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.course import RESULTS_FOLDER, Course, find_checked_root, load_course, results_folder
from cs336_staff.grading.exports import write_course
from cs336_staff.grading.gradebook import Adjustment, Gradebook, GradebookError, Grading
from cs336_staff.grading.grades import grades
from cs336_staff.hidden.release import load_graded_problems
from cs336_staff.sandbox.printable import printable

RESULTS = click.Path(exists=True, file_okay=False, path_type=Path)
ROUNDING = 0.005  # of points: a limit is printed with two digits, and may be typed like that
SHOWN = 2  # names of tests
SAID = ("name", "email", "submission", "attempts", "points", "grade", "notes")  # columns that give no reason

because = click.option("--because", metavar="TEXT", help="The reason, for the student and the gradebook.")
undo = click.option("--undo", is_flag=True, help="Take it back.")
into = click.option("--out", type=RESULTS, default=results_folder, show_default=RESULTS_FOLDER)


@click.command()
@click.argument("submission")
@click.argument("problem", required=False)
@because
@undo
@into
def overrule(submission: str, problem: str | None, because: str | None, undo: bool, out: Path) -> None:
    """Count right answers of SUBMISSION, by its name in the results, that violate the rules.

    For one PROBLEM, or for all in which it has violations. It holds for this content, also when it is graded again.
    """
    if bool(because) == undo:
        raise click.UsageError("expected --because TEXT, or --undo")
    with _decide_on(submission, out, Gradebook.of) as (gradebook, grading, _):
        charged = set(grading.notes.forbidden if because else grading.overruled)
        chosen = {problem} if problem else charged
        if not charged or chosen - charged:
            what = "a violation of the rules" if because else "a decision to take back"
            raise _explain_missing(submission, what, charged, problem or "some problem")
        for each in sorted(chosen):
            gradebook.overrule(grading, each, because)


@click.command(context_settings={"ignore_unknown_options": True})  # -0.5 is one
@click.argument("submission")
@click.argument("problem")
@click.argument("points", type=float, required=False)
@because
@undo
@into
def adjust(submission: str, problem: str, points: float | None, because: str | None, undo: bool, out: Path) -> None:
    """Add POINTS, such as +0.5 or -1, to one PROBLEM of SUBMISSION, by its name in the results.

    Of several attempts the one that counts is adjusted. The adjustment holds for this content, also when it is graded
    again. A second one for the same problem replaces the first.
    """
    if (points is None) != undo or bool(because) == undo:
        raise click.UsageError("expected POINTS and --because TEXT, or --undo")
    with _decide_on(submission, out) as (gradebook, grading, problems):
        if problem not in problems:
            raise click.ClickException(f"expected a problem of {', '.join(problems)}, got {problem}")
        adjustment = None
        if points is not None and because:
            _check_range(grading, problem, points)
            adjustment = Adjustment(points, because, datetime.now().astimezone())
        elif problem not in grading.adjusted:
            raise _explain_missing(submission, "an adjustment", grading.adjusted, problem)
        gradebook.adjust(grading, problem, adjustment)


@contextmanager
def _decide_on(
    submission: str, out: Path, find: Callable[[Gradebook, str], Grading | None] | None = None
) -> Iterator[tuple[Gradebook, Grading, Mapping[str, Problem]]]:
    """Give the grading to decide on; then write what the decision changes, and say what it did to the points.

    Args:
        submission: its name.
        out: the folder of results, which are scored with the present weights first.
        find: finds the grading, if it is not the one that counts.
    """
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    with Gradebook.of_results(out, course.muted) as gradebook:
        found = grades(gradebook, course)
        counts = {grade.grading.submission: grade.grading for grade in found}
        grading = find(gradebook, submission) if find else counts.get(submission)
        if grading is None:
            theirs = [grade.grading.submission for grade in found if grade.student.key == submission]
            hint = f"that student's is {theirs[0]}" if theirs else "grades.csv lists the names"
            raise click.ClickException(f"{out} has no submission {submission}; {hint}")
        only = "" if gradebook.score_with(problems) else grading.submission
        before = gradebook.with_texts(grading)
        yield gradebook, before, problems
        after = gradebook.with_texts(before)
        write_course(Console(), gradebook, problems, out, course, only)
    click.echo(f"{after.submission}: {after.points:.2f} of {after.maximum:g} points, {before.points:.2f} before")


def _check_range(grading: Grading, problem: str, points: float) -> None:
    """Raise click.ClickException if these points would leave less than nothing of a problem, or more than all."""
    earned, maximum = grading.earned(problem), grading.maximum_of(problem)
    least, most = 0 - earned, maximum - earned
    if not least - ROUNDING <= points <= most + ROUNDING:
        raise click.ClickException(
            f"by the tests {grading.submission} has {earned:.2f} of {maximum:g} points in {problem}: "
            f"expected {least:+.2f} to {most:+.2f}, got {points:+g}"
        )


def _explain_missing(submission: str, what: str, has: Iterable[str], expected: str) -> click.ClickException:
    got = ", ".join(sorted(has)) or "no problem"
    return click.ClickException(f"{submission} has {what} in {got}, expected one in {expected}")


@click.command()
@into
def rescore(out: Path) -> None:
    """Score the results recorded in a folder again: with the current weights and the current course.toml.

    Nothing is run. The students whose grades change are printed.
    """
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    with Gradebook.of_results(out, course.muted) as gradebook:
        before = _read_published(out, gradebook, course) if (out / "grades.csv").exists() else None
        gradebook.score_with(problems)
        found = write_course(Console(), gradebook, problems, out, course)
        if before:  # else the first batch was killed
            _print_changes(before, _read_published(out, gradebook, course))
    click.echo(f"{len(found)} grades scored with the present weights, in {out}")


@click.command()
@click.argument("old", type=RESULTS)
@click.argument("new", type=RESULTS)
def diff(old: Path, new: Path) -> None:
    """Say whose grade changed between two folders of results, OLD and NEW, and why."""
    course = load_course(find_checked_root())
    with Gradebook.of_results(old) as one, Gradebook.of_results(new) as other:
        _print_changes(_read_published(old, one, course), _read_published(new, other, course))


@dataclass(frozen=True)
class Published:
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


def _print_changes(old: Published, new: Published) -> None:
    table = Table("Student", "Before", "Now", "Why", title="Whose grade changed")
    for student in sorted(old.rows.keys() | new.rows.keys()):
        before, now = (each.rows.get(student, {}).get("grade", "none") for each in (old, new))
        if before != now:
            reasons = Text("\n".join(_explain_change(old, new, student)))
            table.add_row(Text(printable(student)), before, now, reasons)
    Console().print(table if table.row_count else "No grade changed")


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
    for problem in sorted(old.adjusted.keys() | new.adjusted.keys()):
        one, other = old.adjusted.get(problem), new.adjusted.get(problem)
        if one != other:
            change = f"by {other.points:+g}: {other.because}" if other else "no more"
            yield f"{problem} adjusted {change}"

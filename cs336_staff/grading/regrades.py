"""Regrade requests and questions: `cs336 staff overrule`, `adjust`, `comment`, `feedback` and `who`. Nothing is run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import fsum
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.toml_file import Signed
from cs336_staff.grading.decisions import DIGITS, FILE, Adjustment, Comment, Overruling
from cs336_staff.grading.exports import write_course
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.grades import find_grade, grades
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.rescore import into, open_results
from cs336_staff.sandbox.printable import printable

ROUNDING = 0.005  # of points: a limit is printed with two digits, and may be typed like that

because = click.option("--because", metavar="TEXT", required=True, help="The reason, for the student.")


@click.command()
@click.argument("student")
@click.argument("problem", required=False)
@because
@into
def overrule(student: str, problem: str | None, because: str, out: Path) -> None:
    """Count right answers of STUDENT that violate the rules. A part of the name is enough, or the number.

    For one PROBLEM, or for all in which there are violations. It holds for what was handed in, also when that is graded
    again, until you delete it in decisions.toml.
    """
    with _decide_on(student, out, last=True) as (gradebook, grading, _):
        chosen = {problem} if problem else set(grading.violations)
        if not chosen or chosen - grading.violations.keys():
            got, expected = ", ".join(sorted(grading.violations)) or "no problem", problem or "some problem"
            what = f"{grading.submission} has a violation of the rules in {got}, expected one in {expected}"
            raise click.ClickException(what)
        for each in sorted(chosen):
            gradebook.decide("overrule", Overruling(**_about(grading), text=because, problem=each), grading.submission)


@click.command(context_settings={"ignore_unknown_options": True})  # -0.5 is one
@click.argument("student")
@click.argument("problem")
@click.argument("points", type=float)
@because
@into
def adjust(student: str, problem: str, points: float, because: str, out: Path) -> None:
    """Add POINTS, such as +0.5 or -1, to one PROBLEM of STUDENT. A part of the name is enough, or the number.

    Of several attempts the one that counts is adjusted. It holds for what was handed in, also when that is graded
    again, until you delete it in decisions.toml. A second one for the same problem replaces the first.
    """
    with _decide_on(student, out) as (gradebook, grading, problems):
        if problem not in problems:
            raise click.ClickException(f"expected a problem of {', '.join(problems)}, got {problem}")
        _check_range(grading, problem, points)
        decision = Adjustment(**_about(grading), text=because, problem=problem, points=Signed(points))
        gradebook.decide("adjust", decision, grading.submission)


@click.command()
@click.argument("student")
@click.argument("text")
@into
def comment(student: str, text: str, out: Path) -> None:
    """Put TEXT into the feedback of STUDENT, and change no points."""
    with _decide_on(student, out) as (gradebook, grading, _):
        gradebook.decide("comment", Comment(**_about(grading), text=text), grading.submission)


def _about(grading: Grading) -> dict[str, str]:
    return {"student": grading.handed_in.keys[0], "work": grading.content[:DIGITS]}


@click.command()
@click.argument("student")
@into
def feedback(student: str, out: Path) -> None:
    """Write the feedback of STUDENT again, with what has changed since, and print it."""
    with open_results(out) as (gradebook, course, problems):
        name = find_grade(grades(gradebook, course), student).id
        write_course(Console(stderr=True), gradebook, problems, out, course, name)
    click.echo((out / name / "feedback.md").read_text(encoding="utf-8"), nl=False)


@click.command()
@click.argument("test")
@into
def who(test: str, out: Path) -> None:
    """Say who lost points on TEST, a test function or one case of it as in results.json, and why."""
    lost: dict[str, list[str]] = {}
    with open_results(out) as (gradebook, course, problems):
        if not any(test.partition("[")[0] in problem.tests for problem in problems.values()):
            raise click.ClickException(f"no test is called {test}; results.json has the names")
        for grade in grades(gradebook, course):
            results = gradebook.with_texts(grade.grading).results
            cases = [each for each in results if test in (each.test, each.function) and not each.passed]
            if cases:
                why = "; ".join(dict.fromkeys(each.headline.rstrip(":") for each in cases))
                lost.setdefault(why, []).append(f"{grade.who} ({fsum(each.maximum for each in cases):.2f})")
    table = Table("Students", "Why", "Who, and the points lost", title=test)
    for why, names in sorted(lost.items(), key=lambda each: -len(each[1])):
        table.add_row(str(len(names)), Text(printable(why)), Text(printable("; ".join(names))))
    Console().print(table if lost else "Nobody lost a point on it")


@contextmanager
def _decide_on(
    student: str, out: Path, last: bool = False
) -> Iterator[tuple[Gradebook, Grading, Mapping[str, Problem]]]:
    """Give the grading to decide on; then write what the decision changes, and say what it did to the points.

    Args:
        student: as in `find_grade`.
        out: the folder of results, which are scored with the present weights first.
        last: whether it is the last grading of a submission, and not the one that counts.
    """
    with open_results(out) as (gradebook, course, problems):
        found = grades(gradebook, course)
        grading = gradebook.of(student) if last else None  # a submission that does not count has no grade
        if grading is None:
            grade = find_grade(found, student)
            grading = gradebook.of(grade.id) if last else grade.grading
        assert grading
        only = "" if gradebook.score_with(problems) else grading.submission
        before = gradebook.with_texts(grading)
        yield gradebook, before, problems
        after = gradebook.with_texts(before)
        write_course(Console(), gradebook, problems, out, course, only)
    click.echo(f"{after.submission}: {after.points:.2f} of {after.maximum:g} points, {before.points:.2f} before")
    click.echo(f"It is written in {out / FILE}")


def _check_range(grading: Grading, problem: str, points: float) -> None:
    """Raise click.ClickException if these points would leave less than nothing of a problem, or more than all."""
    earned, maximum = grading.earned(problem), grading.maximum_of(problem)
    least, most = 0 - earned, maximum - earned
    if not least - ROUNDING <= points <= most + ROUNDING:
        raise click.ClickException(
            f"by the tests {grading.submission} has {earned:.2f} of {maximum:g} points in {problem}: "
            f"expected {least:+.2f} to {most:+.2f}, got {points:+g}"
        )

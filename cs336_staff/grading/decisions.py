"""`cs336 staff overrule` and `adjust`: what staff decide about one submission, after a regrade request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.changes import RESULTS
from cs336_staff.grading.course import Course, find_checked_root, load_course
from cs336_staff.grading.exports import Grade, RosterError, grades, write_course
from cs336_staff.grading.gradebook import Adjustment, Gradebook, GradebookError, Grading
from cs336_staff.grading.report import write_all_reports, write_reports
from cs336_staff.hidden.release import load_graded_problems

ROUNDING = 0.005  # of points: a limit is printed with two digits, and may be typed like that


@click.command()
@click.argument("submission")
@click.argument("problem", required=False)
@click.option("--because", metavar="TEXT", help="The reason, for the student and the gradebook.")
@click.option("--undo", is_flag=True, help="Take it back.")
@click.option("--out", type=RESULTS, default=Path("results"))
def overrule(submission: str, problem: str | None, because: str | None, undo: bool, out: Path) -> None:
    """Count right answers of SUBMISSION, by its name in the results, that violate the rules.

    For one PROBLEM, or for all in which it has violations. It holds for this content, also when it is graded again.
    """
    if bool(because) == undo:
        raise click.UsageError("expected --because TEXT, or --undo")
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    try:
        with Gradebook.of_results(out) as gradebook:
            grading = gradebook.of(submission)
            if grading is None:
                raise _unknown(submission, grades(gradebook, course), out)
            charged = set(grading.notes.forbidden if because else grading.overruled)
            chosen = {problem} if problem else charged
            if not charged or chosen - charged:
                got = ", ".join(sorted(charged)) or "no problem"
                what = "a violation of the rules" if because else "a decision to take back"
                expected = problem or "some problem"
                raise click.ClickException(f"{submission} has {what} in {got}, expected one in {expected}")
            before = _scored(gradebook, grading, problems, out)
            for each in sorted(chosen):
                gradebook.overrule(grading, each, because)
            _publish(gradebook, before, problems, out, course)
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None


@click.command(context_settings={"ignore_unknown_options": True})  # -0.5 is one
@click.argument("submission")
@click.argument("problem")
@click.argument("points", type=float, required=False)
@click.option("--because", metavar="TEXT", help="The reason, for the student and the gradebook.")
@click.option("--undo", is_flag=True, help="Take it back.")
@click.option("--out", type=RESULTS, default=Path("results"))
def adjust(submission: str, problem: str, points: float | None, because: str | None, undo: bool, out: Path) -> None:
    """Add POINTS, such as +0.5 or -1, to one PROBLEM of SUBMISSION, by its name in the results.

    Of several attempts the one that counts is adjusted. The adjustment holds for this content, also when it is graded
    again. A second one for the same problem replaces the first.
    """
    if (points is None) != undo or bool(because) == undo:
        raise click.UsageError("expected POINTS and --because TEXT, or --undo")
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    if problem not in problems:
        raise click.ClickException(f"expected a problem of {', '.join(problems)}, got {problem}")
    try:
        with Gradebook.of_results(out) as gradebook:
            found = grades(gradebook, course)
            grading = next((each.grading for each in found if each.grading.submission == submission), None)
            if grading is None:
                raise _unknown(submission, found, out)
            before = _scored(gradebook, grading, problems, out)
            if undo and problem not in before.adjusted:
                got = ", ".join(sorted(before.adjusted)) or "no problem"
                raise click.ClickException(f"{submission} has an adjustment in {got}, expected one in {problem}")
            adjustment = None
            if points is not None and because:
                earned, maximum = before.earned(problem), before.maximum_of(problem)
                least, most = 0 - earned, maximum - earned
                if not least - ROUNDING <= points <= most + ROUNDING:
                    raise click.ClickException(
                        f"by the tests {submission} has {earned:.2f} of {maximum:g} points in {problem}: "
                        f"expected {least:+.2f} to {most:+.2f}, got {points:+g}"
                    )
                adjustment = Adjustment(points, because, datetime.now().astimezone())
            gradebook.adjust(grading, problem, adjustment)
            _publish(gradebook, before, problems, out, course)
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _unknown(submission: str, found: Sequence[Grade], out: Path) -> click.ClickException:
    theirs = [grade.grading.submission for grade in found if grade.student.key == submission]
    hint = f"that student's is {theirs[0]}" if theirs else "grades.csv lists the names"
    return click.ClickException(f"{out} has no submission {submission}; {hint}")


def _scored(gradebook: Gradebook, grading: Grading, problems: Mapping[str, Problem], out: Path) -> Grading:
    """The grading, scored with the present weights like all others."""
    if gradebook.score_with(problems):
        write_all_reports(out, gradebook, problems)
    return gradebook.with_texts(grading)


def _publish(gradebook: Gradebook, before: Grading, problems: Mapping[str, Problem], out: Path, course: Course) -> None:
    """Write what a decision changes, and say what it did to the points."""
    after = gradebook.with_texts(before)
    write_reports(out / after.submission, after, problems)
    write_course(Console(), gradebook, problems, out, course)
    click.echo(f"{after.submission}: {after.points:.1f} of {after.maximum:g} points, {before.points:.1f} before")

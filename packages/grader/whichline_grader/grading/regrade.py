"""`staff adjust`, `who` and `rescore`: nothing is run, what is recorded is scored again."""

import csv
from collections.abc import Collection, Iterator, Mapping
from math import fsum
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whichline.engine.toml_file import Signed
from whichline_grader.grading.course import RESULTS, into
from whichline_grader.grading.decisions import DIGITS, FILE, Adjustment, Comment, Waiver
from whichline_grader.grading.final_grades import find_grade, grades, write_table
from whichline_grader.grading.gradebook import GradebookError, Results, open_results
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.reports import MOST, write_course
from whichline_grader.sandbox.printable import printable

SHOWN = 2  # names of tests
SAID = ("name", "email", "submission", "attempts", "points", "grade", "notes")  # columns that give no reason
ROUNDING = 0.005  # of points: a limit is printed with two digits, and may be typed like that


@click.command(context_settings={"ignore_unknown_options": True})  # -0.5 is one
@click.argument("student")
@click.argument("problem", required=False)
@click.argument("points", type=float, required=False)
@click.option("--because", metavar="TEXT", required=True, help="For the student to read.")
@click.option("--waive", is_flag=True, help="Count right answers that violate the rules.")
@into
def adjust(student: str, problem: str | None, points: float | None, because: str, waive: bool, out: Path) -> None:
    """Tell STUDENT something, or add POINTS, such as +0.5 or -1, to a PROBLEM. A part of the name is enough.

    Without a problem no points change. With --waive what violates the rules counts, in one problem or in all of them.
    It applies to the attempt that counts, with --waive to the last one. It holds for what was handed in, also when that
    is graded again, until you delete it in decisions.toml. Points for a problem that had some replace those.
    """
    if problem and waive == (points is not None):
        raise click.UsageError(f"expected points for {problem}, such as +0.5, or else --waive")
    with open_results(out) as results:
        gradebook, found = results.gradebook, grades(results.gradebook, results.course)
        grading = gradebook.of(student) if waive else None  # a submission that does not count has no grade
        if grading is None:
            grade = find_grade(found, student)
            grading = gradebook.of(grade.id) if waive else grade.grading
        assert grading
        only = "" if gradebook.score_with(results.problems) else grading.submission
        grading = gradebook.with_texts(grading)
        about = {"student": grading.handed_in.keys[0], "work": grading.content[:DIGITS], "text": because}
        if waive:
            decisions = [Waiver(**about, problem=each) for each in _choose_violations(grading, problem)]
        elif problem and points is not None:
            _check_range(results, grading, problem, points)
            decisions = [Adjustment(**about, problem=problem, points=Signed(points))]
        else:
            decisions = [Comment(**about)]
        for decision in decisions:
            gradebook.decide(decision, grading.submission)
        if problem and points is not None and problem in grading.adjusted:
            before, why = grading.adjusted[problem]
            click.echo(f"It replaces {before:+g} points: {printable(why)}")
        after = gradebook.with_texts(grading)
        write_course(Console(), results, only)
    click.echo(f"{after.submission}: {after.points:.2f} of {after.maximum:g} points, {grading.points:.2f} before")
    click.echo(f"Written to {out / FILE}")


def _choose_violations(grading: Grading, problem: str | None) -> list[str]:
    """The problems in which there are violations, or the one that is named; click.ClickException if it has none."""
    if not grading.violations or (problem and problem not in grading.violations):
        got, expected = ", ".join(sorted(grading.violations)) or "no problem", problem or "some problem"
        what = f"{grading.submission} has a violation of the rules in {got}, expected one in {expected}"
        raise click.ClickException(what)
    return [problem] if problem else sorted(grading.violations)


@click.command()
@click.argument("test")
@into
def who(test: str, out: Path) -> None:
    """Say who lost points on TEST, a test function or one case of it as in results.json, and why."""
    lost: dict[str, list[str]] = {}
    with open_results(out) as results:
        if not any(test.partition("[")[0] in problem.tests for problem in results.problems.values()):
            raise click.ClickException(f"no test is called {test}; results.json has the names")
        failed = results.gradebook.failures(test)
        for grade in grades(results.gradebook, results.course):
            if cases := failed.get(grade.grading.id):
                why = "; ".join(dict.fromkeys(headline.rstrip(":") for headline, _ in cases))
                lost.setdefault(why, []).append(f"{grade.who} ({fsum(points for _, points in cases):.2f})")
    table = Table("Students", "Why", "Who, and the points lost", title=test)
    for why, names in sorted(lost.items(), key=lambda each: -len(each[1])):
        table.add_row(str(len(names)), Text(printable(why)), Text(printable("; ".join(names))))
    Console().print(table if lost else "Nobody lost a point on it")


def _check_range(results: Results, grading: Grading, problem: str, points: float) -> None:
    """Raise click.ClickException if these points would leave less than nothing of a problem, or more than all."""
    if problem not in results.problems:
        raise click.ClickException(f"expected a problem of {', '.join(results.problems)}, got {problem}")
    earned, maximum = grading.earned(problem), grading.compute_maximum(problem)
    least, most = 0 - earned, maximum - earned
    if not least - ROUNDING <= points <= most + ROUNDING:
        has = f"by the tests {grading.submission} has {earned:.2f} of {maximum:g} points in {problem}"
        raise click.ClickException(f"{has}: expected {least:+.2f} to {most:+.2f}, got {points:+g}")


@click.command()
@into
@click.option("--against", type=RESULTS, metavar="OLD", help="Compare with these results, and not with those before.")
def rescore(out: Path, against: Path | None) -> None:
    """Score the results recorded in a folder again: with the current weights and the current course.toml.

    Nothing is run. The students whose grades change are printed, with the reason, and written to changes.csv.
    """
    before = None
    if against:
        with open_results(against) as results:
            before = _read_published(results)
    with open_results(out) as results:
        if not against and (out / "grades.csv").exists():
            before = _read_published(results)
        results.gradebook.score_with(results.problems)
        found, _ = write_course(Console(), results)
        if before:  # else the first batch was killed
            _print_changes(before, _read_published(results), out)
    click.echo(f"{len(found)} grades scored with the present weights, in {out}")


class GradedAttempt(NamedTuple):
    """What a row of grades.csv was made from."""

    grading: Grading
    tests: Collection[str]
    failed: Mapping[str, str]  # the outcome of each test that did not pass


# The row of each student in grades.csv, and what it was made from, if that is known.
Published = Mapping[str, tuple[Mapping[str, str], GradedAttempt | None]]


def _read_published(results: Results) -> Published:
    if not (path := results.folder / "grades.csv").exists():
        raise GradebookError(f"no grades.csv in {results.folder}; run `staff grade` to its end first")
    counted = grades(results.gradebook, results.course)
    outcomes = results.gradebook.outcomes
    made = {each.student.key: GradedAttempt(each.grading, *outcomes(each.grading)) for each in counted}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["student"]: (row, made.get(row["student"])) for row in csv.DictReader(file)}


def _print_changes(old: Published, new: Published, out: Path) -> None:
    """Print what changed for everybody in a line, and a row for each student; all rows are in changes.csv."""
    rows: list[tuple[str, str, str, list[str]]] = []
    for student in sorted(old.keys() | new.keys()):
        (before, was), (now, became) = (each.get(student, ({}, None)) for each in (old, new))
        grade, other = before.get("grade", "none"), now.get("grade", "none")
        if grade != other:
            who = " ".join(dict.fromkeys(filter(None, ((now or before).get("name"), student))))
            why = [*(_compare(was, became) if was and became else ()), *_compare_rows(before, now)]
            rows.append((who, grade, other, why))
    if not rows:
        Console().print("No grade changed")
        return
    everybody = [why for why in rows[0][3] if len(rows) > 1 and all(why in row[3] for row in rows)]
    lines = [(*row, "; ".join(why for why in reasons if why not in everybody)) for *row, reasons in rows]
    write_table(out / "changes.csv", [("student", "before", "now", "why"), *lines])
    table = Table("Student", "Before", "Now", "Why", title=f"Whose grade changed: {len(rows)} of {len(new)}")
    for line in lines[:MOST]:
        table.add_row(*(Text(printable(cell)) for cell in line))
    for why in everybody:
        Console().print(Text(f"For all of them: {printable(why)}"))
    Console().print(table)
    Console().print(Text(f"All {len(rows)} are in {out / 'changes.csv'}"))


def _compare_rows(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    if not (before and now):
        yield "graded no more" if before else "graded for the first time"
        return
    for name in now:
        if name not in SAID and before.get(name) != now[name]:
            yield f"{name} {before.get(name) or 'none'} → {now[name] or 'none'}"


def _compare(was: GradedAttempt, became: GradedAttempt) -> Iterator[str]:
    old, new = was.grading, became.grading
    if old.content != new.content:
        yield "other work counts"
    turned = [test for test in (*was.failed, *became.failed) if was.failed.get(test) != became.failed.get(test)]
    turned = [test for test in dict.fromkeys(turned) if test in was.tests and test in became.tests]
    for passed, what in ((True, "now pass"), (False, "pass no more")):
        if tests := [test for test in turned if (test not in became.failed) is passed]:
            more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
            yield f"{', '.join(tests[:SHOWN])}{more} {what}"
    before, now = (fsum(score.points for score in each.scores.values()) for each in (old, new))
    if not turned and old.content == new.content and before != now:
        yield "other weights"
    yield from (line for line in new.decisions if line not in old.decisions)
    yield from (f"no more {line}" for line in old.decisions if line not in new.decisions)

"""All files of a class, from the gradebook: grades, what Canvas imports, and reports."""

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Outcome
from cs336_staff.grading.atomic import write_atomically
from cs336_staff.grading.course import Course
from cs336_staff.grading.decisions import DIGITS, FILE, as_toml
from cs336_staff.grading.feedback import write_reports
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.grades import Grade, grades, grades_of, match_extensions
from cs336_staff.grading.identity import name_for_return
from cs336_staff.grading.lists import IDENTITY, TOTAL, find_ungraded, known_by, read_roster
from cs336_staff.sandbox.printable import printable

# Where a cell begins, whichever of these separates cells for the spreadsheet, and what would be one to run.
FORMULA = re.compile(r'(^|[;\t\n])(?=[\s"]*[=+\-@＝＋－＠])')
EARLIER = "graded by an earlier suite"
UNSURE = "which attempt was the last is not known, the one graded last counts"
MOST = 20  # names or lines that are printed of a list


def write_course(
    console: Console, gradebook: Gradebook, problems: Mapping[str, Problem], out: Path, course: Course, only: str = ""
) -> list[Grade]:
    """Write all that `out` has of a class, and print what staff should look into.

    That is grades.csv, canvas.csv if there is a roster, feedback.zip if Canvas or Moodle named the submissions, and the
    reports of each submission, or of one only.

    Returns:
        The grade of each student.

    Raises:
        RosterError: a list of the course cannot be used.
    """
    found = grades(gradebook, course)
    write_grades(out / "grades.csv", found, list(problems))
    _write_reports(gradebook, problems, out, course, found, only)
    _write_feedback_zip(out, found)
    students = {grade.student.key for grade in found}
    unknown = match_extensions(course, students).extensions.keys() - students
    suite = _last_suite(found)
    noticed = {
        f"{UNSURE}; write which one does into {out / FILE}, below a line [counts]": [
            f"{grade.who}: {' or '.join(map(_counting, (grade, *grade.unsure)))}" for grade in found if grade.unsure
        ],
        "what staff decided is about nothing that was graded": gradebook.unused_decisions(),
        "Has an extension, and no grade": sorted(unknown),
        f"{EARLIER} than the others, so grade again": sorted(
            {grade.id for grade in found if grade.grading.suite != suite}
        ),
    }
    if course.roster:
        without, strangers = write_canvas(out / "canvas.csv", Path(course.roster), found, course.column)
        noticed |= {"In the roster, without a grade": without, "Graded, not in the roster": strangers}
    for what, names in noticed.items():
        if names:
            shown = cut_list(names, MOST, "compare grades.csv with the roster")
            console.print(Text(f"{what[0].upper()}{what[1:]}: {'; '.join(shown)}", "yellow"))
    return found


def _counting(grade: Grade) -> str:
    """The line of the decisions by which this attempt counts, and its grade."""
    return f"{as_toml(grade.student.key)} = {as_toml(grade.grading.content[:DIGITS])} ({grade.points:.2f} points)"


def cut_list(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """The first lines, and how many more there are, with the place of the `rest`."""
    more = len(lines) - most
    return [*lines[:most], *([f"and {more} more: {rest}"] if more > 0 else [])]


def _write_reports(
    gradebook: Gradebook,
    problems: Mapping[str, Problem],
    out: Path,
    course: Course,
    found: Sequence[Grade],
    only: str,
) -> None:
    """Write the reports of every submission, or of one; where it has several attempts, of the one that counts."""
    counts = {grade.student.key: grade.grading.submission for grade in found}
    own: dict[str, list[Grade]] = {}
    for grade in found:
        own.setdefault(grade.grading.submission, []).append(grade)
    for name in gradebook.paths():
        if only not in ("", name) and (out / name / "feedback.md").exists():
            continue
        grading = gradebook.with_texts(own[name][0].grading) if name in own else gradebook.of(name)
        if grading:
            others = [] if name in own else grades_of(grading, course)
            theirs = [replace(grade, instead=counts[grade.student.key]) for grade in others]
            write_reports(out / name, grading, problems, own.get(name, theirs))


def _write_feedback_zip(out: Path, found: Iterable[Grade]) -> None:
    """Write the feedback of each attempt that counts, under the names by which Canvas or Moodle know whose it is."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for grading in {grade.grading.submission: grade.grading for grade in found}.values():
            if name := name_for_return(Path(grading.path), "feedback.md"):
                archive.write(out / grading.submission / "feedback.md", name)
        empty = not archive.namelist()
    if not empty:
        write_atomically(out / "feedback.zip", packed.getvalue())


def write_grades(path: Path, found: Sequence[Grade], problems: Sequence[str]) -> None:
    """One row for each student: what was handed in and when, the points of each problem, their sum, and the grade.

    `days_late` is empty when the time is not known; `late` is then what Canvas says. `grade` is what is left of the
    points after the penalty. `violations` counts lines, `notes` are for staff.
    """
    suite = _last_suite(found)
    columns = ["student", "name", "email", "submission", "attempt", "attempts", "group", "late", "days_late", *problems]
    rows: list[list[object]] = [[*columns, "points", "maximum", "penalty", "grade", "violations", "notes"]]
    for grade in found:
        handed, grading, days, student = grade.handed, grade.grading, grade.days_late, grade.student
        group = ";".join(student.key for student in handed.students) if len(handed.students) > 1 else ""
        row = [student.key, student.name, student.email, grading.submission, grade.attempt, grade.attempts]
        late = handed.late if days is None else days > 0
        row += [group, "yes" if late else "", "" if days is None else days]
        row += [_number(grading.points_of(problem)) for problem in problems]
        row += [_number(points) for points in (grading.points, grading.maximum, grade.penalty, grade.points)]
        meddled = sum(result.outcome is Outcome.VIOLATION for result in grading.results)
        row += [sum(map(len, grading.violations.values())) + meddled, "; ".join(_notes(grade, suite))]
        rows.append(row)
    write_table(path, rows)


def write_table(path: Path, rows: Iterable[Iterable[object]], inert: bool = True) -> None:
    """Write a csv file that is there whole or not at all; if `inert`, with no cell that a spreadsheet would run."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([_inert(cell) if inert else cell for cell in row] for row in rows)
    write_atomically(path, text.getvalue())


def write_canvas(path: Path, roster: Path, found: Iterable[Grade], column: str) -> tuple[list[str], list[str]]:
    """Write the points into a copy of a roster that Canvas exported, for Canvas to import.

    Args:
        path: what is written: the identity columns of the roster and `column`.
        roster: the gradebook as Canvas exports it.
        found: the grades.
        column: the assignment as the roster calls it.

    Returns:
        The students of the roster without a grade, and the students with a grade who are not in the roster.

    Raises:
        RosterError: the file is not a gradebook from Canvas.
    """
    rows, fields = read_roster(roster)
    kept = [name for name in fields if name in IDENTITY]
    waiting = {grade.student.key: grade for grade in found}
    key = known_by(rows, waiting)
    maximum = max((grade.grading.maximum for grade in waiting.values()), default=0.0)
    without = find_ungraded(rows, waiting)
    lines = [[*kept, column]]
    for row in rows:
        grade = waiting.pop(row.get(key, ""), None)
        points = "" if grade is None else _number(grade.points)
        if row["Student"].strip() == TOTAL:
            points = _number(maximum)
        lines.append([*(row[name] for name in kept), points])
    write_table(path, lines, inert=False)  # Canvas knows its own names
    return without, [f"{grade.student.name} ({grade.grading.submission})" for grade in waiting.values()]


def _last_suite(found: Sequence[Grade]) -> str:
    return max((grade.grading for grade in found), key=lambda grading: grading.started).suite if found else ""


def _notes(grade: Grade, suite: str) -> Iterator[str]:
    grading = grade.grading
    if grading.notes.refused:
        yield f"not run: {grading.notes.refused}"
    yield from grading.decisions
    yield from grading.notes.taken_in
    if grading.notes.could_hide:
        yield f"could hide what it calls: {', '.join(grading.notes.could_hide)}"
    if grade.handed.late and grade.days_late is None:
        yield "late, by how much is not known: no penalty"
    if grade.unsure:
        yield UNSURE
    if grading.suite != suite:
        yield EARLIER
    if missing := sum(result.outcome is Outcome.NOT_RUN for result in grading.results):
        yield f"{missing} tests not run"


def _number(points: float) -> str:
    return f"{round(points, 4):g}"


def _inert(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula, with nothing in it that commands a terminal."""
    if not isinstance(cell, str):
        return cell
    return FORMULA.sub(r"\1'", printable(cell))

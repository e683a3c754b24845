"""`grades.csv` and a csv that Canvas imports, from the gradebook."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Outcome
from cs336_staff.grading.course import Course
from cs336_staff.grading.feedback import write_reports
from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.grading.identity import HandedIn, RosterError, Student, with_groups
from cs336_staff.sandbox.printable import printable

IDENTITY = ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Root Account", "Section")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
KEYS = ("ID", "SIS User ID", "SIS Login ID")

EARLIER = "graded by an earlier suite"


@dataclass(frozen=True)
class Grade:
    """The points of one student, and the attempt that they are for.

    Args:
        student: who.
        handed: the attempt that counts.
        grading: its results.
        attempts: how many there were.
        days_late: of this attempt, if that is known.
        penalty: what lateness costs, in points.
    """

    student: Student
    handed: HandedIn
    grading: Grading
    attempts: int
    days_late: int | None
    penalty: float

    @property
    def points(self) -> float:
        """The grade that counts in the end."""
        return self.grading.points - self.penalty


def grades(gradebook: Gradebook, course: Course) -> list[Grade]:
    """One grade for each student, for the last or the best of all attempts that were ever graded; by key."""
    groups = read_groups(Path(course.groups)) if course.groups else {}
    chosen: dict[str, Grade] = {}
    for grading in gradebook.attempts():
        handed = with_groups(grading.handed_in, groups)
        for student in handed.students:
            days = course.days_late(student.key, handed)
            before = chosen.get(student.key)
            attempts = 1 + (before.attempts if before else 0)
            grade = Grade(student, handed, grading, attempts, days, course.penalty(days) * grading.points)
            if before and not _counts(grade, before, course.attempt):
                grade = replace(before, attempts=attempts)
            chosen[student.key] = grade
    return [grade for _, grade in sorted(chosen.items())]


def write_course(
    console: Console, gradebook: Gradebook, problems: Mapping[str, Problem], out: Path, course: Course
) -> list[Grade]:
    """Write grades.csv, and canvas.csv if there is a roster; print what staff should look into.

    Where there are several attempts, the reports are of the one that counts.

    Returns:
        The grade of each student.

    Raises:
        RosterError: the roster or the list of groups cannot be used.
    """
    found = grades(gradebook, course)
    write_grades(out / "grades.csv", found, list(problems))
    for grading in (grade.grading for grade in found if grade.attempts > 1):
        write_reports(out / grading.submission, gradebook.with_texts(grading), problems)
    unknown = course.extensions.keys() - {grade.student.key for grade in found}
    lines = [f"Has an extension, and no grade: {key}" for key in sorted(unknown)]
    suite = _last_suite(found)
    if earlier := sorted({grade.grading.submission for grade in found if grade.grading.suite != suite}):
        lines.append(f"{EARLIER.capitalize()} than the others, so grade them again: {', '.join(earlier)}")
    if course.roster:
        without, strangers = write_canvas(out / "canvas.csv", Path(course.roster), found, course.column)
        lines += [f"In the roster, without a grade: {name}" for name in without]
        lines += [f"Graded, not in the roster: {name}" for name in strangers]
    for line in lines:
        console.print(Text(line, "yellow"))
    return found


def write_grades(path: Path, found: Sequence[Grade], problems: Sequence[str]) -> None:
    """One row for each student: what was handed in and when, the points of each problem, their sum, and the grade.

    `days_late` is empty when the time is not known; `late` is then what Canvas says. `grade` is what is left of the
    points after the penalty. `violations` counts tests, `notes` are for staff.
    """
    suite = _last_suite(found)
    columns = ["student", "name", "email", "submission", "attempt", "attempts", "group", "late", "days_late", *problems]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "points", "maximum", "penalty", "grade", "violations", "notes"])
        for grade in found:
            handed, grading, days = grade.handed, grade.grading, grade.days_late
            group = ";".join(student.key for student in handed.students) if len(handed.students) > 1 else ""
            student = grade.student
            row = [student.key, student.name, student.email, grading.submission, handed.attempt + 1, grade.attempts]
            late = handed.late if days is None else days > 0
            row += [group, "yes" if late else "", "" if days is None else days]
            row += [_number(grading.points_of(problem)) for problem in problems]
            row += [_number(points) for points in (grading.points, grading.maximum, grade.penalty, grade.points)]
            row += [sum(r.outcome is Outcome.VIOLATION for r in grading.results), "; ".join(_notes(grade, suite))]
            writer.writerow([_inert(x) for x in row])


def write_canvas(path: Path, roster: Path, found: Iterable[Grade], column: str) -> tuple[list[str], list[str]]:
    """Write the points into a copy of a roster that Canvas exported, for Canvas to import.

    Args:
        path: what is written: the identity columns of the roster and `column`.
        roster: the gradebook as Canvas exports it.
        found: the grades; students are found by `ID` or by one of the SIS columns, whichever knows most of them: the
            number of one student in one column may be that of another in the next.
        column: the assignment as the roster calls it, or a new one.

    Returns:
        The students of the roster without a grade, and the students with a grade who are not in the roster.

    Raises:
        RosterError: the file is not a gradebook from Canvas.
    """
    rows, fields = read_roster(roster)
    kept = [name for name in fields if name in IDENTITY]
    waiting = {grade.student.key: grade for grade in found}
    known_by = max(KEYS, key=lambda name: sum(row.get(name) in waiting for row in rows))
    maximum = max((grade.grading.maximum for grade in waiting.values()), default=0.0)
    without: list[str] = []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*kept, column])
        writer.writeheader()
        for row in rows:
            line = {name: row[name] or "" for name in kept}
            if line["Student"].strip() == "Points Possible":
                writer.writerow(line | {column: _number(maximum)})
                continue
            grade = waiting.pop(line.get(known_by, ""), None)
            if grade is None:
                without.append(line["Student"])
            writer.writerow(line | {column: "" if grade is None else _number(grade.points)})
    return without, [f"{grade.student.name} ({grade.grading.submission})" for grade in waiting.values()]


def check_lists(course: Course) -> None:
    """Raise RosterError if a list cannot be read: now, and not when everything is graded."""
    if course.groups:
        read_groups(Path(course.groups))
    if course.roster:
        read_roster(Path(course.roster))


def read_roster(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a gradebook that Canvas exported, and its columns.

    Raises:
        RosterError: the file is not a gradebook from Canvas.
    """
    rows, fields = _table(path)
    if not {"Student", "ID"} <= set(fields):
        raise RosterError(f"{path} has no columns Student and ID; export the gradebook from Canvas")
    return rows, fields


def read_groups(path: Path) -> dict[str, tuple[Student, ...]]:
    """The group of each student, from the list of groups that Canvas exports.

    Raises:
        RosterError: the file is not a list of groups.
    """
    rows, _ = _table(path)
    members: dict[str, list[Student]] = {}
    try:
        for row in rows:
            if row["group_name"]:
                members.setdefault(row["group_name"], []).append(Student(row["canvas_user_id"], row["name"]))
    except KeyError as missing:
        raise RosterError(f"{path} has no column {missing}; export the groups from Canvas") from None
    return {student.key: tuple(group) for group in members.values() for student in group}


def _table(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a csv file, and its columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            return list(reader), list(reader.fieldnames or ())
    except (UnicodeError, csv.Error) as error:
        raise RosterError(f"{path} is not a CSV file in UTF-8 ({error}); save it as one, or export it again") from None


def _counts(grade: Grade, before: Grade, attempt: str) -> bool:
    """Tell whether `grade` counts rather than the one before it; times are compared if both are known."""
    one, other = grade.handed, before.handed
    if attempt == "best" and grade.points != before.points:
        return grade.points > before.points
    if one.at and other.at and one.at != other.at:
        return one.at > other.at
    return one.attempt >= other.attempt


def _last_suite(found: Sequence[Grade]) -> str:
    return max((grade.grading for grade in found), key=lambda grading: grading.started).suite if found else ""


def _notes(grade: Grade, suite: str) -> Iterator[str]:
    grading = grade.grading
    if grading.notes.refused:
        yield f"not run: {grading.notes.refused}"
    yield from (f"{problem} overruled: {because}" for problem, because in grading.overruled.items())
    yield from (f"{problem} adjusted by {each.points:+g}: {each.because}" for problem, each in grading.adjusted.items())
    yield from grading.notes.taken_in
    if grade.handed.late and grade.days_late is None:
        yield "late, by how much is not known: no penalty"
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
    text = printable(cell)
    return f"'{text}" if text.startswith(("\t", "\n")) or text.lstrip().startswith(FORMULA) else text

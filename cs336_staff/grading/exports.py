"""`grades.csv` and a csv that Canvas imports, from the gradebook."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cs336_kit.engine.result import Outcome
from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.grading.identity import HandedIn, RosterError, Student, handed_in, with_groups
from cs336_staff.sandbox.replies import printable

IDENTITY = ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Root Account", "Section")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
KEYS = ("ID", "SIS User ID", "SIS Login ID")

Attempt = Literal["latest", "best"]


@dataclass(frozen=True)
class Grade:
    """What one student got, and for which submission."""

    student: Student
    handed: HandedIn
    grading: Grading


def grades(
    gradebook: Gradebook, take: Attempt = "latest", groups: Mapping[str, tuple[Student, ...]] | None = None
) -> list[Grade]:
    """One grade for each student, for the latest or the best attempt; of equal attempts the later one."""
    of_student: dict[str, list[Grade]] = {}
    for grading in gradebook.latest(texts=False):
        handed = with_groups(handed_in(Path(grading.path), grading.submission), groups or {})
        for student in handed.students:
            of_student.setdefault(student.key, []).append(Grade(student, handed, grading))
    return [max(attempts, key=_latest if take == "latest" else _best) for _, attempts in sorted(of_student.items())]


def write_grades(path: Path, found: Iterable[Grade], problems: Sequence[str], due: datetime | None = None) -> None:
    """One row for each student: what was handed in and when, the points of each problem, and the sum.

    `days_late` is empty when the time is not known; `late` is then what Canvas says. `violations` counts tests, `notes`
    are for staff: what was overruled.
    """
    columns = ["student", "name", "email", "submission", "attempt", "group", "late", "days_late", *problems]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "points", "maximum", "violations", "notes"])
        for grade in found:
            handed, grading = grade.handed, grade.grading
            days = handed.days_late(due)
            group = ";".join(student.key for student in handed.students) if len(handed.students) > 1 else ""
            student = grade.student
            row = [student.key, student.name, student.email, grading.submission, handed.attempt + 1, group]
            row += ["yes" if handed.late or days else "", "" if days is None else days]
            row += [_number(sum(r.points for r in grading.results if r.problem == problem)) for problem in problems]
            violations = sum(r.outcome is Outcome.VIOLATION for r in grading.results)
            row += [_number(grading.points), _number(grading.maximum), violations, "; ".join(_notes(grading))]
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
        RosterError: the file is no gradebook of Canvas.
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
            writer.writerow(line | {column: "" if grade is None else _number(grade.grading.points)})
    return without, [f"{grade.student.name} ({grade.grading.submission})" for grade in waiting.values()]


def read_roster(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a gradebook that Canvas exported, and its columns.

    Raises:
        RosterError: the file is none.
    """
    rows, fields = _table(path)
    if not {"Student", "ID"} <= set(fields):
        raise RosterError(f"{path} has no columns Student and ID; export the gradebook from Canvas")
    return rows, fields


def read_groups(path: Path) -> dict[str, tuple[Student, ...]]:
    """The group of each student, from the list of groups that Canvas exports.

    Raises:
        RosterError: the file is no such list.
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
        raise RosterError(f"{path} is no csv file in UTF-8 ({error}); save it as one, or export it again") from None


def _latest(grade: Grade) -> tuple[object, ...]:
    return (grade.handed.at or datetime.min.replace(tzinfo=UTC), grade.handed.attempt, grade.grading.started)


def _best(grade: Grade) -> tuple[object, ...]:
    return (grade.grading.points, *_latest(grade))


def _notes(grading: Grading) -> list[str]:
    overruled = [f"{problem} overruled: {because}" for problem, because in grading.overruled.items()]
    return [*overruled, *grading.notes.taken_in]


def _number(points: float) -> str:
    return f"{round(points, 4):g}"


def _inert(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula, with nothing in it that commands a terminal."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.startswith(("\t", "\n")) or text.lstrip().startswith(FORMULA) else text

"""The lists of a class, as Canvas exports them: its roster, its groups, and when each submission came."""

import csv
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path

from cs336_staff.grading.identity import RosterError, Student

KEYS = ("ID", "SIS User ID", "SIS Login ID")
IDENTITY = ("Student", *KEYS, "Integration ID", "Root Account", "Section")
TOTAL = "Points Possible"  # the row of no student
Row = dict[str, str]


def read_roster(path: Path) -> tuple[list[Row], list[str]]:
    """The rows of a gradebook that Canvas exported, and its columns.

    Raises:
        RosterError: the file is not a gradebook from Canvas.
    """
    return _table(path, ("Student", "ID"), "export the gradebook from Canvas")


def known_by(rows: Iterable[Row], keys: Collection[str]) -> str:
    """The column of a roster that knows most of these students: a number in one may be another's in the next."""
    return max(KEYS, key=lambda name: sum(row.get(name) in keys for row in rows))


def find_ungraded(rows: Iterable[Row], keys: Collection[str]) -> list[str]:
    """The students of a roster, by name, who have none of these keys."""
    rows = list(rows)
    key = known_by(rows, keys)
    students = (row for row in rows if row["Student"].strip() != TOTAL)
    return [row["Student"] for row in students if row.get(key, "") not in keys]


def read_groups(path: Path) -> dict[str, tuple[Student, ...]]:
    """The group of each student, from the list of groups that Canvas exports.

    Raises:
        RosterError: the file is not a list of groups.
    """
    rows, _ = _table(path, ("group_name", "canvas_user_id", "name"), "export the groups from Canvas")
    members: dict[str, list[Student]] = {}
    for row in rows:
        if row["group_name"]:
            members.setdefault(row["group_name"], []).append(Student(row["canvas_user_id"], row["name"]))
    return {student.key: tuple(group) for group in members.values() for student in group}


def read_times(path: Path) -> dict[int, datetime]:
    """The time at which each file came, by the id that Canvas knows the file by.

    Raises:
        RosterError: the file is not such a list.
    """
    rows, _ = _table(path, ("file_id", "submitted_at"), "write it as cs336_staff/docs/running-a-course.md says")
    times: dict[int, datetime] = {}
    for number, row in enumerate(rows, start=2):
        try:
            at = datetime.fromisoformat(row["submitted_at"])
        except ValueError:
            at = datetime.min
        if at.tzinfo is None:
            expected = "expected a time with its offset from UTC, such as 2026-10-01T23:59:00Z"
            raise RosterError(f"{path}:{number}: submitted_at is {row['submitted_at']!r}, {expected}")
        if not row["file_id"].isdecimal():
            raise RosterError(f"{path}:{number}: file_id is {row['file_id']!r}, expected Canvas's number of a file")
        times[int(row["file_id"])] = at
    return times


def _table(path: Path, expected: Iterable[str], todo: str) -> tuple[list[Row], list[str]]:
    """The rows of a csv file that has the expected columns, and all of its columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            rows, fields = list(reader), list(reader.fieldnames or ())
    except (UnicodeError, csv.Error) as error:
        raise RosterError(f"{path} is not a CSV file in UTF-8 ({error}); save it as one, or export it again") from None
    if missing := [name for name in expected if name not in fields]:
        raise RosterError(f"{path} has no column {' or '.join(missing)}; {todo}")
    return rows, fields

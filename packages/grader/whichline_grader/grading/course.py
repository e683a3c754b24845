"""The course, as staff state it: `course.toml`, and the lists of a class that Canvas exports, which that names."""

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

import click

from whichline.engine.assignment import FILE_NAME, find_root, read_assignment
from whichline.engine.toml_file import Complaint, locate_error, read_toml
from whichline_grader.grading.identity import HandedIn, Platform, RosterError, Student
from whichline_grader.hidden.release import CourseFolder, load_course_folder, load_graded_problems
from whichline_grader.paths import COURSE
from whichline_grader.sandbox.limits import Limits

LISTS = ("roster", "groups", "times")
FINDING = r"[a-z0-9]+(-[a-z0-9]+)+"  # the id of one
RESULTS = click.Path(file_okay=False, path_type=Path)  # as a command is given it; `open_results` looks inside
RESULTS_FOLDER = "results, in the course's folder if there is one"

KEYS = ("ID", "SIS User ID", "SIS Login ID")
IDENTITY = ("Student", *KEYS, "Integration ID", "Root Account", "Section")
TOTAL = "Points Possible"  # the row of no student
Row = dict[str, str]


@dataclass(frozen=True)
class Roster:
    """A gradebook that Canvas exported."""

    rows: list[Row] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    def find_column(self, keys: Collection[str]) -> str:
        """The column that knows most of these students: a number in one may be another's in the next."""
        return max(KEYS, key=lambda name: sum(row.get(name) in keys for row in self.rows))

    def find_ungraded(self, keys: Collection[str]) -> list[str]:
        """The students, by name, who have none of these keys."""
        key = self.find_column(keys)
        students = (row for row in self.rows if row["Student"].strip() != TOTAL)
        return [row["Student"] for row in students if row.get(key, "") not in keys]


def read_roster(path: Path) -> Roster:
    """Read a gradebook that Canvas exported; RosterError if it is not one."""
    rows, columns = _read_table(path, ("Student", "ID"), "export the gradebook from Canvas")
    for number, row in enumerate(rows, start=2):
        if row["ID"] == "ID":
            todo = "export all sections as one; a second site of Canvas is a course of its own"
            raise RosterError(f"{path}:{number}: a second export begins; {todo}")
    return Roster(rows, columns)


def read_groups(path: Path) -> dict[str, tuple[Student, ...]]:
    """The group of each student, from the list of groups that Canvas exports; RosterError if it is not one."""
    rows, _ = _read_table(path, ("group_name", "canvas_user_id", "name"), "export the groups from Canvas")
    members: dict[str, list[Student]] = {}
    for row in rows:
        if row["group_name"]:
            members.setdefault(row["group_name"], []).append(Student(row["canvas_user_id"], row["name"]))
    return {student.key: tuple(group) for group in members.values() for student in group}


def read_times(path: Path) -> dict[int, datetime]:
    """The time at which each file came, by the id that Canvas knows the file by; RosterError if the list has none."""
    rows, _ = _read_table(path, ("file_id", "submitted_at"), "write it as running-a-course.md says")
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


def _read_table(path: Path, expected: Iterable[str], todo: str) -> tuple[list[Row], list[str]]:
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


@dataclass(frozen=True)
class Late:
    free_days: int = 0  # days after the deadline that cost nothing
    percent: float = 0.0  # of the points, for each day after those


@dataclass(frozen=True)
class Course(CourseFolder):
    """`course.toml`, whole. Every key has a default."""

    due: datetime | None = None  # the deadline
    attempt: Literal["last", "best"] = "last"  # that counts; the best after what lateness costs
    late: Late = field(default_factory=Late)  # what lateness costs
    extensions: dict[str, datetime] = field(default_factory=dict)  # deadlines, by the column `student` of grades.csv
    platform: Platform = ""  # that named the files handed in; without it, their names decide
    roster: str = ""  # the gradebook that Canvas exported
    groups: str = ""  # the list of groups that Canvas exported
    times: str = ""  # when each file was handed in, as Canvas knows it
    column: str = "Assignment"  # the assignment's column in the roster
    limits: Limits = field(default_factory=Limits)  # what a submission may use
    muted: tuple[str, ...] = ()  # ids of findings that are told to nobody

    def check(self) -> Iterator[Complaint]:
        yield from super().check()
        if self.extensions and self.due is None:
            yield Complaint(("extensions",), "are there, and no key due: when is everybody's deadline?")
        if self.late.percent > 100:
            yield Complaint(("late", "percent"), f"is {self.late.percent:g}, expected at most 100")
        for student, due in self.extensions.items():
            if self.due and due < self.due:
                yield Complaint(("extensions", student), f"is {due}, before everybody's deadline, {self.due}")
        for name, limit in vars(self.limits).items():
            if not limit:
                yield Complaint(("limits", name), "is 0: no submission could run")
        for id in self.muted:
            if not re.fullmatch(FINDING, id):
                expected = "expected ids of findings, as in the column finding of findings.csv"
                yield Complaint(("muted",), f"has {id!r}, {expected}")

    @cached_property
    def members(self) -> dict[str, tuple[Student, ...]]:
        return read_groups(Path(self.groups)) if self.groups else {}

    @cached_property
    def times_of_upload(self) -> dict[int, datetime]:
        return read_times(Path(self.times)) if self.times else {}

    @cached_property
    def listed(self) -> Roster:
        """The roster; without one, nobody is listed."""
        return read_roster(Path(self.roster)) if self.roster else Roster()

    def list_names(self, students: Collection[str]) -> dict[str, str]:
        key = self.listed.find_column(students)
        return {row[key]: row["Student"] for row in self.listed.rows if row.get(key) in students}

    def days_late(self, student: str, handed_in: HandedIn) -> int | None:
        """Days after the student's deadline, each begun one counted; None when the time of either is not known."""
        due = self.extensions.get(student, self.due)
        if handed_in.at is None or due is None:
            return None
        return max(0, math.ceil((handed_in.at - due) / timedelta(days=1)))

    def describe_lateness(self, days_late: int | None, handed_in: HandedIn) -> str:
        """In words, for the student; empty if the attempt is not late."""
        if days_late is None:
            return "handed in late, by how much is not known" if handed_in.late else ""
        free = min(days_late, self.late.free_days)
        costs = f", {self.late.percent:g} % of the points for each {'other ' * bool(free)}day"
        days = f"{days_late} day{'s' * (days_late > 1)}{f', {free} free' if free else ''}"
        return f"{days}{costs if days_late > free and self.late.percent else ''}" if days_late else ""

    def penalty(self, days_late: int | None) -> float:
        """The part of the points that lateness costs: 0 where it is not known."""
        return min(1.0, self.late.percent / 100 * max(0, (days_late or 0) - self.late.free_days))


def load_course(root: Path) -> Course:
    """The course; its lists are in its folder, or beside `course.toml` if it has none; AssignmentError for errors."""
    path = root / COURSE
    course = read_toml(path, Course, Course.check)
    folder = course.place or path.parent
    return replace(course, **{name: str(folder / file) for name in LISTS if (file := getattr(course, name))})


def results_folder() -> Path:
    """The folder of the results, unless a command is given another one."""
    return (load_course_folder().place or Path()) / "results"


into = click.option("--out", type=RESULTS, default=results_folder, show_default=RESULTS_FOLDER)


def find_checked_root() -> Path:
    """The root of the assignment around this folder, once all that staff state is checked: now, and not at the end."""
    root = find_root(Path.cwd())
    if not (root / (package := read_assignment(root).package)).is_dir():
        raise locate_error(root / FILE_NAME, Complaint(("package",), f"is {package!r}, and there is no such folder"))
    course = load_course(root)
    named = [(root / COURSE, (name,), getattr(course, name)) for name in LISTS if getattr(course, name)]
    for number, problem in enumerate(load_graded_problems(root).values()):
        named += [(root / FILE_NAME, ("problem", number, "files"), root / file) for file in problem.files]
    for path, key, file in named:
        if not Path(file).is_file():
            raise locate_error(path, Complaint(key, f"names {file}, and there is no such file"))
    _ = course.members, course.times_of_upload
    columns = [name for name in course.listed.columns if name not in IDENTITY]
    if course.roster and course.column not in columns:
        has = ", ".join(map(repr, columns)) or "no assignment"
        what = f"is {course.column!r}, which {course.roster} does not have; expected one of {has}"
        raise locate_error(root / COURSE, Complaint(("column",), what))
    return root

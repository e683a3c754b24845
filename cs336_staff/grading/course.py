"""The course, as `course.toml` states it: the deadline, late days, whose attempt counts, the lists of its students."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from cs336_kit.engine.assignment import FILE_NAME, find_root
from cs336_kit.engine.toml_file import Complaint, located, read_toml
from cs336_staff.grading.identity import HandedIn, Platform, Student
from cs336_staff.grading.lists import IDENTITY, known_by, read_groups, read_roster, read_times
from cs336_staff.hidden.release import CourseFolder, load_course_folder, load_graded_problems
from cs336_staff.sandbox.limits import Limits

FILE = "cs336_staff/course.toml"
LISTS = ("roster", "groups", "times")
FINDING = r"[a-z0-9]+(-[a-z0-9]+)+"  # the id of one
RESULTS_FOLDER = "results, in the course's folder if there is one"


@dataclass(frozen=True)
class Late:
    """The cost of being late.

    Args:
        free_days: days after the deadline that cost nothing.
        percent: of the points, for each day after those.
    """

    free_days: int = 0
    percent: float = 0.0


@dataclass(frozen=True)
class Course(CourseFolder):
    """`course.toml`, whole. Every key has a default.

    Args:
        folder, secret_sha256: as in `CourseFolder`.
        due: the deadline.
        attempt: which attempt of a student counts: the last, or the one that earns most after what lateness costs.
        late: what lateness costs.
        extensions: the deadline of single students, by the column `student` of grades.csv.
        platform: that named the files handed in; without it, their names decide.
        roster: the gradebook that Canvas exported.
        groups: the list of groups that Canvas exported.
        times: when each file was handed in, as Canvas knows it.
        column: the assignment's column in the roster.
        limits: what a submission may use.
        muted: ids of findings that are told to nobody.
    """

    due: datetime | None = None
    attempt: Literal["last", "best"] = "last"
    late: Late = field(default_factory=Late)
    extensions: dict[str, datetime] = field(default_factory=dict)
    platform: Platform = ""
    roster: str = ""
    groups: str = ""
    times: str = ""
    column: str = "Assignment"
    limits: Limits = field(default_factory=Limits)
    muted: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise Complaint where values do not go together."""
        super().check()
        if self.extensions and self.due is None:
            raise Complaint(("extensions",), "are there, and no key due: when is everybody's deadline?")
        if self.late.percent > 100:
            raise Complaint(("late", "percent"), f"is {self.late.percent:g}, expected at most 100")
        for student, due in self.extensions.items():
            if self.due and due < self.due:
                raise Complaint(("extensions", student), f"is {due}, before everybody's deadline, {self.due}")
        for name, limit in vars(self.limits).items():
            if not limit:
                raise Complaint(("limits", name), "is 0: no submission could run")
        for id in self.muted:
            if not re.fullmatch(FINDING, id):
                raise Complaint(
                    ("muted",), f"has {id!r}, expected ids of findings, as in the column finding of findings.csv"
                )

    @cached_property
    def members(self) -> dict[str, tuple[Student, ...]]:
        """The group of each student."""
        return read_groups(Path(self.groups)) if self.groups else {}

    @cached_property
    def came(self) -> dict[int, datetime]:
        """The time at which each file came, by Canvas's id of the file."""
        return read_times(Path(self.times)) if self.times else {}

    def names_of(self, students: Collection[str]) -> dict[str, dict[str, str]]:
        """The name of each of these students in the roster, under `name`."""
        rows = read_roster(Path(self.roster))[0] if self.roster else []
        key = known_by(rows, students)
        return {row[key]: {"name": row["Student"]} for row in rows if row.get(key) in students}

    def days_late(self, student: str, handed_in: HandedIn) -> int | None:
        """Days after the student's deadline, each begun one counted; None when the time of either is not known."""
        due = self.extensions.get(student, self.due)
        if handed_in.at is None or due is None:
            return None
        return max(0, math.ceil((handed_in.at - due) / timedelta(days=1)))

    def say_late(self, days_late: int | None, handed_in: HandedIn) -> str:
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
    """The course; its lists are looked for in its folder, or beside `course.toml` if it has none.

    Raises:
        AssignmentError: something in the file is not as it should be.
    """
    path = root / FILE
    course = read_toml(path, Course, Course.check)
    folder = course.place or path.parent
    return replace(course, **{name: str(folder / file) for name in LISTS if (file := getattr(course, name))})


def results_folder() -> Path:
    """The folder of the results, unless a command is given another one."""
    return (load_course_folder().place or Path()) / "results"


def find_checked_root() -> Path:
    """The root of the assignment around this folder, once all that staff state is checked.

    Raises:
        AssignmentError: something in `assignment.toml` or `course.toml` is not as it should be.
    """
    root = find_root(Path.cwd())
    course = load_course(root)
    named = [(root / FILE, (name,), getattr(course, name)) for name in LISTS if getattr(course, name)]
    for number, problem in enumerate(load_graded_problems(root).values()):
        named += [(root / FILE_NAME, ("problem", number, "files"), root / file) for file in problem.files]
    for path, key, file in named:
        if not Path(file).is_file():
            raise located(path, Complaint(key, f"names {file}, and there is no such file"))
    _check_lists(root / FILE, course)
    return root


def _check_lists(path: Path, course: Course) -> None:
    """Raise RosterError or AssignmentError if a list cannot be used: now, and not when everything is graded."""
    _ = course.members, course.came
    if course.roster:
        columns = [name for name in read_roster(Path(course.roster))[1] if name not in IDENTITY]
        if course.column not in columns:
            has = ", ".join(map(repr, columns)) or "no assignment"
            what = f"is {course.column!r}, which {course.roster} does not have; expected one of {has}"
            raise located(path, Complaint(("column",), what))

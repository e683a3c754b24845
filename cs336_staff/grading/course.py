"""The course, as `course.toml` states it: the deadline, late days, whose attempt counts, the lists of its students."""

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cs336_kit.engine.assignment import FILE_NAME, find_root
from cs336_kit.engine.toml_file import Complaint, located, read_toml
from cs336_staff.grading.identity import HandedIn
from cs336_staff.hidden.release import load_graded_problems
from cs336_staff.sandbox.limits import Limits

FILE = "cs336_staff/course.toml"
LISTS = ("roster", "groups")


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
class Course:
    """`course.toml`, whole. Every key has a default.

    Args:
        due: the deadline.
        attempt: which attempt of a student counts: the last, or the one that earns most after what lateness costs.
        late: what lateness costs.
        extensions: the deadline of single students, by the column `student` of grades.csv.
        roster: the gradebook that Canvas exported.
        groups: the list of groups that Canvas exported.
        column: the assignment's column in the roster.
        limits: what a submission may use.
    """

    due: datetime | None = None
    attempt: Literal["last", "best"] = "last"
    late: Late = field(default_factory=Late)
    extensions: dict[str, datetime] = field(default_factory=dict)
    roster: str = ""
    groups: str = ""
    column: str = "Attention"
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Raise Complaint where values do not go together."""
        if self.extensions and self.due is None:
            raise Complaint(("extensions",), "are there, and no key due: when is everybody's deadline?")
        if self.late.percent > 100:
            raise Complaint(("late", "percent"), f"is {self.late.percent:g}, expected at most 100")
        for name, limit in vars(self.limits).items():
            if not limit:
                raise Complaint(("limits", name), "is 0: no submission could run")

    def days_late(self, student: str, handed_in: HandedIn) -> int | None:
        """Days after the student's deadline, each begun one counted; None when the time of either is not known."""
        due = self.extensions.get(student, self.due)
        if handed_in.at is None or due is None:
            return None
        return max(0, math.ceil((handed_in.at - due) / timedelta(days=1)))

    def penalty(self, days_late: int | None) -> float:
        """The part of the points that lateness costs: 0 where it is not known."""
        return min(1.0, self.late.percent / 100 * max(0, (days_late or 0) - self.late.free_days))


def load_course(root: Path) -> Course:
    """The course; its lists are looked for beside `course.toml`.

    Raises:
        AssignmentError: something in the file is not as it should be.
    """
    path = root / FILE
    course = read_toml(path, Course, Course.check)
    lists = {name: str(path.parent / file) for name in LISTS if (file := getattr(course, name))}
    return replace(course, **lists)


def find_checked_root() -> Path:
    """The root of the assignment around this folder, once all that staff state is checked.

    Raises:
        AssignmentError: something in `assignment.toml`, `release.toml` or `course.toml` is not as it should be.
    """
    root = find_root(Path.cwd())
    course = load_course(root)
    named = [(root / FILE, (name,), getattr(course, name)) for name in LISTS if getattr(course, name)]
    for number, problem in enumerate(load_graded_problems(root).values()):
        named += [(root / FILE_NAME, ("problem", number, "files"), root / file) for file in problem.files]
    for path, key, file in named:
        if not Path(file).is_file():
            raise located(path, Complaint(key, f"names {file}, and there is no such file"))
    return root

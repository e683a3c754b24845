"""Who handed a submission in, and when: read from the names that Canvas and Gradescope give to what they export."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cs336_staff.sandbox.printable import printable

METADATA = "submission_metadata.yml"  # Gradescope's, beside the submissions

# smithjane_LATE_1234_567890_homework-2.zip: name, Canvas's id of the student, id of the submission, the file's own
# name, and the attempt, counted from the second one on.
CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_.*?(-(?P<attempt>\d+))?(\.\w+)?")


class RosterError(Exception):
    """What says who the students are cannot be used: a roster, a list of groups, metadata; the message says why."""


@dataclass(frozen=True)
class Student:
    """One person.

    Args:
        key: what a roster knows the student by: Canvas's id, or Gradescope's student id.
        name: for people.
        email: if it is known.
    """

    key: str
    name: str
    email: str = ""


@dataclass(frozen=True)
class HandedIn:
    """What the name of a submission, or the metadata beside it, says.

    Args:
        students: who handed it in; a group has several.
        attempt: counted from 0.
        late: whether it came after the deadline.
        at: when it came, if that is known.
        guessed: whether nothing says who did it, and the name of the submission stands for its student.
    """

    students: tuple[Student, ...]
    attempt: int = 0
    late: bool = False
    at: datetime | None = None
    guessed: bool = False


def handed_in(path: Path, submission: str) -> HandedIn:
    """Who did it: read from Gradescope's metadata beside `path`, from Canvas's file name, or else nobody knows.

    Then the submission, by the name of its report, stands for its student: names of files are not always different.

    Raises:
        RosterError: the metadata cannot be read.
    """
    metadata = path.parent / METADATA
    if metadata.is_file():
        entries = _entries(metadata)
        if entry := entries.get(path.stem) or entries.get(path.name):
            return _of_gradescope(entry)
    if found := CANVAS.fullmatch(path.name):
        student = Student(found["id"], _line(found["name"]))
        return HandedIn((student,), int(found["attempt"] or 0), found["late"] is not None)
    name = path.name.removesuffix(".py").removesuffix(".zip")
    return HandedIn((Student(submission.removesuffix(".py"), _line(name)),), guessed=True)


def check_claims(submissions: Mapping[str, Path]) -> None:
    """Raise RosterError if two of these are by one student: students choose names of files, and so could choose whose.

    Args:
        submissions: what is graded at a time, by name.
    """
    claimed: dict[str, Path] = {}
    for name, path in submissions.items():
        for student in handed_in(path, name).students:
            if (other := claimed.setdefault(student.key, path)) != path:
                raise RosterError(
                    f"two submissions by student {_line(student.key)}: {_line(str(other))} and {_line(str(path))}; "
                    "keep the right one, put files of one submission into a folder, grade attempts one after another"
                )


def with_groups(handed: HandedIn, groups: Mapping[str, tuple[Student, ...]]) -> HandedIn:
    """The same, handed in by everybody in the group of whoever did it."""
    students = {member.key: member for one in handed.students for member in groups.get(one.key, (one,))}
    return replace(handed, students=tuple(students.values()))


@cache
def _entries(metadata: Path) -> dict[str, Any]:
    """Read once for all submissions: it has an entry for each of them."""
    # BaseLoader: every value stays the text that it is, so that a student id keeps its leading zeros.
    try:
        entries = yaml.load(metadata.read_text(encoding="utf-8"), yaml.BaseLoader) or {}  # noqa: S506
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise RosterError(f"{metadata} cannot be read ({reason}); take it from Gradescope's export again") from None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise RosterError(f"{metadata} has no entry for each submission; take it from Gradescope's export again")
    return entries


def _of_gradescope(entry: dict[str, Any]) -> HandedIn:
    submitters = entry.get(":submitters") or []
    students = tuple(
        Student(
            submitter.get(":sid") or submitter.get(":email") or submitter.get(":name") or "unknown",
            _line(submitter.get(":name") or ""),
            submitter.get(":email") or "",
        )
        for submitter in submitters
    )
    created = entry.get(":created_at")
    at = datetime.fromisoformat(created.replace(" Z", "+00:00").replace(" UTC", "+00:00")) if created else None
    return HandedIn(students, attempt=len(entry.get(":history") or []), at=at)


def _line(text: str) -> str:
    """`text` in one line that can be printed anywhere."""
    return " ".join(printable(text).split())

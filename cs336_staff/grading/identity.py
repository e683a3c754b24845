"""Finding out who handed in, and when, from the names that Canvas, Moodle, Blackboard and Gradescope give."""

import re
from collections.abc import Iterable, Mapping
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
CANVAS = r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_(?P<file>.*?)(-(?P<attempt>\d+))?(?P<suffix>\.\w+)?"
# Jane Smith_1234_assignsubmission_file_homework.zip, or a folder of that name without a file's; and what was typed.
MOODLE = r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_((?P<text>onlinetext)|file)_?(?P<file>.*)"
# Homework 1_smithjane_attempt_2026-10-01-23-58-01_homework.zip, and a .txt that says what there is.
BLACKBOARD = r".+_(?P<id>(?P<name>[^_]+))_attempt_\d{4}(-\d\d){5}((?P<text>\.txt)|_(?P<file>.*))"
FORMS = [re.compile(form) for form in (MOODLE, BLACKBOARD, CANVAS)]


class RosterError(Exception):
    """A roster, a list of groups or metadata cannot be used; the message says why."""


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
    """The facts in the name of a submission, or in the metadata beside it.

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
    """Find out who did it, from Gradescope's metadata beside `path` or from the file's name; else nobody knows.

    Then the submission, by the name of its report, stands for its student: names of files are not always different.

    Raises:
        RosterError: the metadata cannot be read.
    """
    metadata = path.parent / METADATA
    if metadata.is_file():
        entries = _entries(metadata)
        if entry := entries.get(path.stem) or entries.get(path.name):
            return _of_gradescope(entry)
    if found := _parts(path):
        student = Student(found["id"], _line(found["name"]))
        return HandedIn((student,), int(found.get("attempt") or 0), bool(found.get("late")))
    name = path.name.removesuffix(".py").removesuffix(".zip")
    return HandedIn((Student(submission.removesuffix(".py"), _line(name)),), guessed=True)


def together(paths: Iterable[Path]) -> dict[Path, dict[str, Path]]:
    """List what to grade: the path that stands for each submission, and its files by own name if there are several.

    Python files that one student handed in one by one are one submission. What a learning platform writes beside the
    submissions is left out.
    """
    of_student: dict[object, list[tuple[Path, dict[str, str]]]] = {}
    for path in paths:
        if path.name != METADATA:
            parts = _parts(path)
            of_student.setdefault((path.parent, parts["id"]) if parts else path, []).append((path, parts))
    found: dict[Path, dict[str, Path]] = {}
    for each in of_student.values():
        files = [(path, parts) for path, parts in each if not parts.get("text")] or each
        own = {f"{parts.get('file', '')}{parts.get('suffix', '')}": path for path, parts in files}
        if len(own) == len(files) > 1 and all(name.endswith(".py") for name in own):
            found[own.get("adapters.py", files[0][0])] = own
        else:
            found |= {path: {} for path, _ in files}
    return found


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


def _parts(path: Path) -> dict[str, str]:
    """Read what a platform wrote into the name of `path`; nothing if it has no platform's form."""
    found = next(filter(None, (form.fullmatch(path.name) for form in FORMS)), None)
    return found.groupdict("") if found else {}


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

"""Finding out who handed in, and when, from the names that Canvas, Moodle, Blackboard and Gradescope give."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import yaml

from whichline.engine.errors import CourseworkError
from whichline_grader.sandbox.printable import printable

METADATA = "submission_metadata.yml"  # Gradescope's, beside the submissions
LONGEST = 180  # bytes of a name that is kept whole

# What a platform writes comes first, with a `prefix` for each student. What follows, the student may have written.
FORMS = {
    # smithjane_LATE_1234_567890_homework-2.zip: name, Canvas's id of the student, id of the file, the file's own name,
    # and a number if the student had handed in one of that name before, or typed it.
    "canvas": r"(?s)(?P<prefix>(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+))_(?P<order>\d+)_"
    r"(?P<file>.*?)(-\d+)?(?P<suffix>\.\w+)?",
    # Jane Smith_1234_assignsubmission_file_homework.zip, or a folder of that name without a file's; and what was typed.
    # Moodle writes a space for an underscore in the name.
    "moodle": r"(?s)(?P<prefix>(?P<name>[^_]+)_(?P<id>\d+))_assignsubmission_"
    r"((?P<text>onlinetext)|file)_?(?P<file>.*)",
    # Homework 1_smithjane_attempt_2026-10-01-23-58-01_homework.zip, and a .txt that says what there is.
    "blackboard": r"(?s)(?P<prefix>.+?_(?P<id>(?P<name>[^_]+))_attempt_(?P<order>\d{4}(-\d\d){5}))"
    r"((?P<text>\.txt)|_(?P<file>.*))",
}
Platform = Literal["", "canvas", "moodle", "blackboard", "gradescope", "none"]


class RosterError(CourseworkError):
    """A roster, a list of groups or metadata cannot be used; the message says why."""


@dataclass(frozen=True)
class Student:
    key: str  # what a roster knows the student by: Canvas's id, or Gradescope's student id
    name: str  # for people
    email: str = ""  # if it is known


@dataclass(frozen=True)
class HandedIn:
    """The facts in the name of a submission, or in the metadata beside it."""

    students: tuple[Student, ...]  # who handed it in; a group has several
    order: int = 0  # what the platform wrote: of two attempts the later one has the larger number. 0 if it wrote none
    late: bool = False  # whether it came after the deadline
    at: datetime | None = None  # when it came, if that is known
    guessed: bool = False  # whether nothing says who did it, and the name of the submission stands for its student

    @property
    def keys(self) -> list[str]:
        return [student.key for student in self.students]

    def is_later(self, other: Self) -> bool | None:
        """Tell whether it came after another of the same students; None if nothing that a platform wrote says so."""
        if self.at and other.at and self.at != other.at:
            return self.at > other.at
        if self.order and other.order and self.order != other.order:
            return self.order > other.order
        return None

    def as_json(self) -> str:
        """One line, which `parse_handed_in` reads."""
        return json.dumps(asdict(self), default=datetime.isoformat, ensure_ascii=False)


def parse_handed_in(text: str) -> HandedIn:
    """The attempt that `HandedIn.as_json` wrote; ValueError if it did not."""
    return msgspec.json.decode(text, type=HandedIn)


def _find_platform(folder: Path, paths: list[Path]) -> Platform:
    """The platform that wrote the names in a folder, which is one download; RosterError if two platforms fit.

    Its form at least half of the names have, and most. One name decides nothing: its student may have written a part of
    it in the form of another platform.
    """
    exported = sum(bool(re.fullmatch(r"submission_\d+(\.\w+)?", path.name)) for path in paths)
    if (folder / METADATA).is_file() and 2 * exported >= len(paths):
        return "gradescope"
    platforms: list[Platform] = ["canvas", "moodle", "blackboard"]
    fits = {platform: sum(bool(_parse_name(path, platform)) for path in paths) for platform in platforms}
    best, second, _ = sorted(platforms, key=fits.__getitem__, reverse=True)
    if 2 * fits[best] < len(paths):
        return "none"
    if fits[best] == fits[second]:
        names = f"are named as {best.title()} and {second.title()} name them"
        which = f'`platform = "{best}"` or `platform = "{second}"`, in staff/course.toml'
        raise RosterError(f"the files in {_flatten(str(folder))} {names}; say which it was, {which}")
    return best


def handed_in(path: Path, submission: str, platform: Platform) -> HandedIn:
    """Find out who did it, from Gradescope's metadata beside `path` or from the file's name; else nobody knows.

    Then the submission, by the name of its report, stands for its student: names of files are not always different.
    """
    metadata = path.parent / METADATA
    if platform == "gradescope" and metadata.is_file():
        entries = _read_entries(metadata)
        if entry := entries.get(path.stem) or entries.get(path.name):
            return _parse_gradescope(entry)
    if found := _parse_name(path, platform):
        student = Student(found["id"], _flatten(found["name"]))
        return HandedIn((student,), int(found.get("order", "0").replace("-", "")), bool(found.get("late")))
    name = path.name.removesuffix(".py").removesuffix(".zip")
    return HandedIn((Student(submission.removesuffix(".py"), _flatten(name)),), guessed=True)


@dataclass(frozen=True)
class Upload:
    """One submission as it was handed in."""

    path: Path  # where it lies
    platform: Platform  # that named it
    files: Mapping[str, Path] = field(default_factory=dict)  # by own name, if it came as several; `path` is one of them


def find_uploads(paths: Iterable[Path], stated: Platform = "") -> list[Upload]:
    """List the submissions in these paths, of the platform that is `stated` or fits.

    Python files that one student handed in one by one are one submission. So are files that cannot be put together, by
    their whole names: it is refused when it is taken in. What a learning platform writes beside the submissions is left
    out. RosterError if it is not clear which platform named them.
    """
    paths = [path for path in dict.fromkeys(path.resolve() for path in paths) if path.name != METADATA]
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    platforms: dict[Path, Platform] = {at: stated or _find_platform(at, inside) for at, inside in folders.items()}
    of_prefix: dict[object, list[tuple[Path, dict[str, str]]]] = {}
    for path in paths:
        parts = _parse_name(path, platforms[path.parent])
        of_prefix.setdefault((path.parent, parts["prefix"]) if parts else path, []).append((path, parts))
    found = []
    for each in of_prefix.values():
        files = [(path, parts) for path, parts in each if not parts.get("text")] or each
        own = {f"{parts.get('file', '')}{parts.get('suffix', '')}": path for path, parts in files}
        if len(own) < len(files) or not all(name.endswith(".py") for name in own):
            own = {path.name: path for path, _ in files}
        path = own.get("adapters.py", files[0][0])
        found.append(Upload(path, platforms[path.parent], own if len(files) > 1 else {}))
    return found


def check_claims(works: Mapping[str, Upload]) -> None:
    """Raise RosterError if two submissions, by name, are by one student: whoever chooses a name could choose whose."""
    claimed: dict[str, Path] = {}
    for name, work in works.items():
        for student in handed_in(work.path, name, work.platform).students:
            if (other := claimed.setdefault(student.key, work.path)) != work.path:
                both = f"{_flatten(str(other))} and {_flatten(str(work.path))}"
                todo = "keep the right one, put files of one submission into a folder, grade attempts one after another"
                raise RosterError(f"two submissions by student {_flatten(student.key)}: {both}; {todo}")


def _parse_name(path: Path, platform: Platform) -> dict[str, str]:
    """Read what the platform wrote into the name of `path`; nothing if it does not have its form."""
    found = re.fullmatch(FORMS[platform], path.name) if platform in FORMS else None
    return found.groupdict("") if found else {}


def name_for_return(path: Path, file: str) -> str:
    """The name of a `file` for whoever handed in `path`, as Canvas or Moodle takes it back; empty if neither named it.

    Both read whose it is from the beginning of the name that they gave.
    """
    if found := re.fullmatch(FORMS["canvas"], path.name) or re.fullmatch(FORMS["moodle"], path.name):
        beginning = path.name[: found.start("file")] if found["file"] else path.name
        return f"{beginning.removesuffix('_')}_{file}"
    return ""


def add_groups(handed: HandedIn, groups: Mapping[str, tuple[Student, ...]]) -> HandedIn:
    """The same, handed in by everybody in the group of whoever did it."""
    students = {member.key: member for one in handed.students for member in groups.get(one.key, (one,))}
    return replace(handed, students=tuple(students.values()))


@cache
def _read_entries(metadata: Path) -> dict[str, Any]:
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


def _parse_gradescope(entry: dict[str, Any]) -> HandedIn:
    keys = (":sid", ":email", ":name")
    submitters = ([each.get(key) or "" for key in keys] for each in entry.get(":submitters") or [])
    students = tuple(Student(id or email or name or "unknown", _flatten(name), email) for id, email, name in submitters)
    created = entry.get(":created_at")
    at = datetime.fromisoformat(created.replace(" Z", "+00:00").replace(" UTC", "+00:00")) if created else None
    return HandedIn(students, at=at)


def _flatten(text: str) -> str:
    return " ".join(printable(text).split())


def make_safe_name(name: str) -> str:
    """A folder's name for what was handed in under `name`, with nothing in it that a shell or a browser takes amiss.

    Of a long name the middle is left out, with a digest of the whole in its place: both ends may say whose it is.
    """
    name = unicodedata.normalize("NFC", name.removesuffix(".zip"))
    letters = (c if c in "._-" or unicodedata.category(c)[0] in "LMN" else " " for c in name)  # of any script
    safe = re.sub(" +", "_", "".join(letters)).lstrip(".-")
    if len(whole := safe.encode()) > LONGEST:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
        start, end = (part.decode(errors="ignore") for part in (whole[: LONGEST // 2], whole[-LONGEST // 2 :]))
        safe = f"{start}_{digest}_{end}"
    # Files and a folder that are written beside it.
    is_beside = safe.endswith((".csv", ".html", ".jsonl")) or safe.startswith("gradebook.sqlite")
    if is_beside or safe in ("students", "answers"):
        safe += "_"
    return safe or "submission"

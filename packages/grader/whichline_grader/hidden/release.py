"""The release of the hidden suite: the secret that its inputs come from, and the weights of its tests."""

import hmac
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from whichline.engine.assignment import (
    FILE_NAME,
    PROBLEMS,
    Problem,
    check_weights,
    load_problems,
    name_command,
    tests_in,
    this_root,
)
from whichline.engine.toml_file import AssignmentError, Complaint, located, read_toml
from whichline_grader.paths import COURSE, HIDDEN_TESTS, STAFF, find_hidden_tests

EXAMPLE = b"anyone can read this"
HIDDEN_WEIGHT = 4.0  # of a public test: its cases can be written into a table
SECRET, CASES = "secret.txt", "hidden"  # in the folder of the course


@dataclass(frozen=True)
class CourseFolder:
    """The keys of `course.toml` that say where a course has its secret.

    Args:
        folder: the course's own, outside the checkout; empty for a rehearsal.
        secret_sha256: tells the secret from any other, and says nothing about it.
    """

    folder: str = ""
    secret_sha256: str = ""

    def check(self) -> Iterator[Complaint]:
        """Say where one of the two is there without the other."""
        if bool(self.folder) != bool(self.secret_sha256):
            key = "folder" if self.folder else "secret_sha256"
            yield Complaint((key,), "is there alone; folder and secret_sha256 go together, as `new-course` writes them")

    @property
    def place(self) -> Path | None:
        """The folder, if there is one; a relative one is beside `course.toml`."""
        return (this_root() / COURSE).parent / os.path.expanduser(self.folder) if self.folder else None


@dataclass(frozen=True)
class Release:
    """The secret, and where the hidden cases that are drawn from it are stored.

    Args:
        secret: where every hidden input comes from.
        folder: of the course; none for a rehearsal, whose secret everybody can read.
    """

    secret: bytes
    folder: Path | None = None

    @property
    def cases(self) -> Path:
        return self.folder / CASES if self.folder else this_root() / STAFF / "fixtures"

    def seed(self, name: str) -> int:
        """The seed of what has this name: whoever knows some seeds knows no other one, and not the secret."""
        return int.from_bytes(hmac.digest(self.secret, name.encode(), "sha256")[:7])


def load_release() -> Release:
    """The release of the course that `course.toml` names; a rehearsal if it names none.

    Raises:
        AssignmentError: the course's secret is not there, or something in the two files is not as it should be.
    """
    course = load_course_folder()
    if course.place is None:
        return rehearsal()
    path, todo = course.place / SECRET, "restore it from your backup"
    if not path.is_file():
        raise AssignmentError(f"{path} is missing; {todo}")
    secret = path.read_bytes().strip()
    if sha256(secret).hexdigest() != course.secret_sha256:
        raise AssignmentError(f"{path} is another secret than that of course.toml; {todo}")
    return Release(secret, course.place)


def describe_rehearsal() -> str:
    """Say that the secret is one that everybody can read."""
    return (
        "REHEARSAL: the hidden inputs come from the example secret of whichline-grader, which anyone can read. "
        f"Run `{name_command('staff new-course FOLDER')}` before you grade a class."
    )


def rehearsal() -> Release:
    """The release whose secret everybody can read."""
    return Release(EXAMPLE)


def load_course_folder() -> CourseFolder:
    """Read what `course.toml` says of the folder; this raises AssignmentError as `read_toml` does."""
    return read_toml(this_root() / COURSE, CourseFolder, CourseFolder.check, partly=True)


def naming(folder: str, secret: bytes) -> str:
    """The text of `course.toml` once it names this folder and this secret, in its first lines."""
    others = re.sub(
        r"^(folder|secret_sha256) *=.*\n", "", (this_root() / COURSE).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return name_folder(folder, secret) + others


def name_folder(folder: str, secret: bytes) -> str:
    """The two lines of `course.toml` that name a folder and its secret."""
    return f'folder = {json.dumps(folder, ensure_ascii=False)}\nsecret_sha256 = "{sha256(secret).hexdigest()}"\n'


def load_graded_problems(root: Path) -> dict[str, Problem]:
    """The problems by id, their points shared by public and hidden tests.

    Where a problem states no weights of its hidden tests, each has `HIDDEN_WEIGHT`.

    Raises:
        AssignmentError: something in `assignment.toml` is not as it should be: a problem has no hidden tests, or a test
            no weight, or a weight no test.
    """
    problems = load_problems(root, left_out=None)
    for problem in [*problems.values()]:
        if not (hidden_tests := find_hidden_tests(root, problem.id)).exists():
            raise AssignmentError(f"{hidden_tests} is missing: {FILE_NAME} has a problem {problem.id}")
        weights = problem.hidden or dict.fromkeys(sorted(tests_in([hidden_tests])), HIDDEN_WEIGHT)
        if not weights:
            raise AssignmentError(f"{hidden_tests} has no test: {problem.id} needs hidden tests")
        problems[problem.id] = replace(problem, hidden=weights)
    hidden_tests = [*root.glob(f"{PROBLEMS}/*/{HIDDEN_TESTS}")]
    for kind, files in (("tests", [*root.glob("tests/test_*.py")]), ("hidden", hidden_tests)):
        weighed = {name for problem in problems.values() for name in getattr(problem, kind)}
        for name in sorted(check_weights(root, problems.values(), kind, files) - weighed):
            home = next(file for file in files if name in tests_in([file]))
            what = f"gives no weight to {name} of {home.relative_to(root).as_posix()}"
            raise located(root / FILE_NAME, Complaint(("problem",), what))
    chosen = [problem for problem in problems.values() if not problem.left_out]
    return {problem.id: replace(problem, tests={**problem.tests, **problem.hidden}) for problem in chosen}

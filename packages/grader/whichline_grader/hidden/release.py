"""The release of the hidden suite: the secret of its inputs, and the weights of its tests."""

import hmac
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from whichline.engine import assignment
from whichline.engine.assignment import FILE_NAME, PROBLEMS, Problem, get_root, load_problems, name_command
from whichline.engine.toml_file import AssignmentError, Complaint, locate_error, read_toml
from whichline_grader.paths import COURSE, HIDDEN_TESTS, STAFF, find_hidden_tests

HIDDEN_WEIGHT = 4.0  # of a public test: its cases can be written into a table
SECRET, CASES = "secret.txt", "hidden"  # in the folder of the course


@dataclass(frozen=True)
class CourseFolder:
    """The keys of `course.toml` that locate the secret of a course."""

    folder: str = ""  # the course's own folder, outside the checkout; empty for a rehearsal
    secret_sha256: str = ""  # identifies the secret without revealing it

    def check(self) -> Iterator[Complaint]:
        if bool(self.folder) != bool(self.secret_sha256):
            key = "folder" if self.folder else "secret_sha256"
            yield Complaint((key,), "is set alone; folder and secret_sha256 go together, as `new-course` writes them")

    @property
    def place(self) -> Path | None:
        """The path of the folder, if there is one; a relative path starts beside `course.toml`."""
        return (get_root() / COURSE).parent / os.path.expanduser(self.folder) if self.folder else None


@dataclass(frozen=True)
class Release:
    """The secret, and the folder of the hidden cases drawn from it."""

    secret: bytes  # every hidden input is drawn from it
    folder: Path | None = None  # of the course; None for a rehearsal, whose secret everybody can read

    @property
    def cases(self) -> Path:
        return self.folder / CASES if self.folder else get_root() / STAFF / "fixtures"

    def seed(self, name: str) -> int:
        """The seed for a name. Known seeds reveal neither the secret nor any other seed."""
        return int.from_bytes(hmac.digest(self.secret, name.encode(), "sha256")[:7])


REHEARSAL = Release(b"anyone can read this")


def load_release() -> Release:
    """Load the release of the course that `course.toml` names, a rehearsal if it names none.

    AssignmentError if the secret is missing, or `course.toml` has errors.
    """
    if (course := load_course_folder()).place is None:
        return REHEARSAL
    path, todo = course.place / SECRET, "restore it from your backup"
    if not path.is_file():
        raise AssignmentError(f"{path} is missing; {todo}")
    secret = path.read_bytes().strip()
    if sha256(secret).hexdigest() != course.secret_sha256:
        raise AssignmentError(f"{path} is not the secret that course.toml names; {todo}")
    return Release(secret, course.place)


def describe_rehearsal() -> str:
    """Warn that everybody can read the secret."""
    public = "the hidden inputs come from the example secret of whichline-grader, which anyone can read"
    return f"REHEARSAL: {public}. Run `{name_command('staff new-course FOLDER')}` before you grade a class."


def load_course_folder() -> CourseFolder:
    """Read the folder from `course.toml`; raises AssignmentError as `read_toml` does."""
    return read_toml(get_root() / COURSE, CourseFolder, CourseFolder.check, partly=True)


def name_folder(folder: str, secret: bytes) -> str:
    """Format the two lines of `course.toml` that name a folder and its secret."""
    return f'folder = {json.dumps(folder, ensure_ascii=False)}\nsecret_sha256 = "{sha256(secret).hexdigest()}"\n'


def load_graded_problems(root: Path) -> dict[str, Problem]:
    """Load the problems by id, with the weights of public and hidden tests together.

    Each hidden test has `HIDDEN_WEIGHT` in a problem that states no weights for them. AssignmentError for a problem
    without hidden tests, a test without a weight, or a weight without a test.
    """
    problems = load_problems(root, left_out=None)
    for problem in [*problems.values()]:
        if not (hidden_tests := find_hidden_tests(root, problem.id)).exists():
            raise AssignmentError(f"{hidden_tests} is missing: {FILE_NAME} has a problem {problem.id}")
        weights = problem.hidden or dict.fromkeys(sorted(assignment.list_test_names([hidden_tests])), HIDDEN_WEIGHT)
        if not weights:
            raise AssignmentError(f"{hidden_tests} has no test: {problem.id} needs hidden tests")
        problems[problem.id] = replace(problem, hidden=weights)
    hidden_tests = [*root.glob(f"{PROBLEMS}/*/{HIDDEN_TESTS}")]
    for kind, files in (("tests", [*root.glob("tests/test_*.py")]), ("hidden", hidden_tests)):
        weighed = {name for problem in problems.values() for name in getattr(problem, kind)}
        for name in sorted(assignment.check_weights(root, problems.values(), kind, files) - weighed):
            home = next(file for file in files if name in assignment.list_test_names([file]))
            what = f"gives no weight to {name} of {home.relative_to(root).as_posix()}"
            raise locate_error(root / FILE_NAME, Complaint(("problem",), what))
    chosen = [problem for problem in problems.values() if not problem.left_out]
    return {problem.id: replace(problem, tests={**problem.tests, **problem.hidden}) for problem in chosen}

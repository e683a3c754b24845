"""The release of the hidden suite: its secret, and the weights of its tests."""

import hmac
from dataclasses import dataclass, replace
from pathlib import Path

from cs336_kit.engine.assignment import Problem, load_problems
from cs336_kit.engine.toml_file import Complaint, located, read_toml

FOLDER = Path(__file__).parent
SECRET = FOLDER / "secret.txt"  # git ignores it
FILE = FOLDER / "release.toml"
REHEARSAL = (
    "REHEARSAL: the hidden inputs come from the example secret in release.toml, which anyone can read. "
    "Run `cs336 staff fixtures --new-secret` before you grade a class."
)


@dataclass(frozen=True)
class Release:
    """The contents of `release.toml` and `secret.txt`.

    Args:
        secret: where every hidden input comes from.
        rehearsal: whether that is the example, since there is no `secret.txt`.
        weights: for each problem, the weight of each of its hidden tests.
    """

    secret: str
    rehearsal: bool
    weights: dict[str, dict[str, float]]

    def seed(self, name: str) -> int:
        """The seed of what has this name: whoever knows some seeds knows no other one, and not the secret."""
        return int.from_bytes(hmac.digest(self.secret.encode(), name.encode(), "sha256")[:7])


@dataclass(frozen=True)
class _Stated:
    """`release.toml`, whole."""

    example_secret: str
    weights: dict[str, dict[str, float]]


def load_release() -> Release:
    """The release, as it is stated.

    Raises:
        AssignmentError: something in `release.toml` is not as it should be.
    """
    stated = read_toml(FILE, _Stated)
    rehearsal = not SECRET.exists()
    secret = stated.example_secret if rehearsal else SECRET.read_text(encoding="utf-8").strip()
    return Release(secret, rehearsal, stated.weights)


def load_graded_problems(root: Path, left_out: bool = False) -> dict[str, Problem]:
    """The problems by id, their points shared by public and hidden tests; or those that this course leaves out.

    Raises:
        AssignmentError: `assignment.toml` and `release.toml` do not go together.
    """
    problems, weights = load_problems(root) | load_problems(root, left_out=True), load_release().weights
    seen = {test for problem in problems.values() for test in problem.tests}
    try:
        for id in problems.keys() - weights.keys():
            raise Complaint(("weights", id), "is missing: a problem needs hidden tests")
        for id, tests in weights.items():
            if id not in problems:
                raise Complaint(
                    ("weights", id), f"is not a problem of the assignment; its problems are {', '.join(problems)}"
                )
            for test in tests:
                if test in seen:
                    raise Complaint(("weights", id, test), "already has a weight, in assignment.toml or above")
            seen.update(tests)
    except Complaint as complaint:
        raise located(FILE, complaint) from None
    chosen = {id: problem for id, problem in problems.items() if problem.left_out == left_out}
    return {id: replace(problem, tests={**problem.tests, **weights[id]}) for id, problem in chosen.items()}


def left_out_tests(root: Path) -> set[str]:
    """The test functions of the problems that this course leaves out."""
    return {test for problem in load_graded_problems(root, left_out=True).values() for test in problem.tests}

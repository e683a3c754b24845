"""The places in an assignment of what only staff have."""

from pathlib import Path

from whichline.engine.assignment import PROBLEMS

STAFF = "staff"  # in a problem, or at the root: no folder of this name ever ships
COURSE = f"{STAFF}/course.toml"
HIDDEN_TESTS = f"{STAFF}/hidden_tests.py"  # in a problem


def find_hidden_tests(root: Path, problem: str) -> Path:
    """The file of the hidden tests of a problem."""
    return root / PROBLEMS / problem / HIDDEN_TESTS

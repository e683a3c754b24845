"""The places of what the grader works with: what only staff have in an assignment, its own code, and the engine."""

from pathlib import Path

import whichline
from whichline.engine.assignment import PROBLEMS

# Packages, which may be installed: never ask these where an assignment is.
ENGINE, GRADER = Path(whichline.__file__).parent, Path(__file__).parent

STAFF = "staff"  # in a problem, or at the root: no folder of this name ever ships
COURSE = f"{STAFF}/course.toml"
HIDDEN_TESTS = f"{STAFF}/hidden_tests.py"  # in a problem


def find_hidden_tests(root: Path, problem: str) -> Path:
    return root / PROBLEMS / problem / HIDDEN_TESTS

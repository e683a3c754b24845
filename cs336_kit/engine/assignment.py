"""The problems of the assignment, as `assignment.toml` states them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

FILE_NAME = "assignment.toml"

STUDENT_FILES = ("adapters.py", "cs336_basics")  # what students write; the rest is the course's


class AssignmentError(Exception):
    """`assignment.toml` is missing or cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Problem:
    """One problem.

    Args:
        id: its name on the command line.
        title: its name for people.
        points: what full marks are worth.
        files: what the student writes, relative to the root.
        tests: the weight of each test function; the cases of one function share its weight evenly.
        hints: from a question to a pointer.
        bonus: whether its points come on top of the maximum.
    """

    id: str
    title: str
    points: float
    files: tuple[str, ...]
    tests: dict[str, float]
    hints: tuple[str, ...]
    bonus: bool = False


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds `assignment.toml`.

    Raises:
        AssignmentError: no folder above it does.
    """
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise AssignmentError(f"no {FILE_NAME} in {start} or above it; go to the folder of the assignment and try again")


def is_students(path: PurePath) -> bool:
    """Tell whether a path relative to the root is the student's, also where capital letters make no difference."""
    return path.parts[0].casefold() in STUDENT_FILES


def load_problems(root: Path) -> dict[str, Problem]:
    """The problems by id, in the order of the assignment.

    Raises:
        AssignmentError: the file is not TOML, or a problem lacks a key.
    """
    path = root / FILE_NAME
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["problem"]
        problems = [
            Problem(
                id=table["id"],
                title=table["title"],
                points=float(table["points"]),
                files=tuple(table["files"]),
                tests={name: float(weight) for name, weight in table["tests"].items()},
                hints=tuple(table["hints"]),
                bonus=table.get("bonus", False) is True,
            )
            for table in tables
        ]
    except OSError as error:
        raise AssignmentError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AssignmentError(f"{path} is not TOML: {error}; take it again from the handout") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AssignmentError(f"{path} lacks or misstates {error}; take it again from the handout") from None
    return {problem.id: problem for problem in problems}


def find_problem(problems: Mapping[str, Problem], name: str) -> Problem:
    """The problem of this name.

    Raises:
        AssignmentError: no problem has this name.
    """
    try:
        return problems[name]
    except KeyError:
        raise AssignmentError(f"no problem is called {name}; the problems are {', '.join(problems)}") from None

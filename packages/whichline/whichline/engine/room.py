"""Rooms: what ships about a problem besides its tests, in the folder below `problems/` that is named like it.

The engine, the board and the plugin name no problem: the right program in steps is found here. Where numbers alone do
not say whether an answer is right, `judge.py` beside the room says it, and the tests of the problem import that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from whichline.engine.assignment import FILE_NAME, PROBLEMS, SuiteError, put_root_on_path
from whichline.engine.case import Case

Functions = Mapping[str, Callable[..., Any]]  # by the names of the adapters that they stand for


@dataclass(frozen=True)
class Room:
    """All that ships about one problem.

    Args:
        steps: for each of its adapters, the right program in named steps, called with what takes the steps (`Steps` of
            whichline/way/steps.py) and the arguments.
        on_paper: the smallest part of a wrong answer that can be checked on paper, in a few lines and never with the
            right answer. It is called with the case, the answer in float64, where it is wrong, and the size up to which
            a number may be taken for 0.
    """

    steps: Functions = field(default_factory=dict)
    on_paper: Callable[[Case, Tensor, Tensor, float], Iterator[str]] | None = None


@cache
def load_room(problem: str) -> Room:
    """The room of the problem with this id.

    Raises:
        SuiteError: it is missing, or not as it should be.
    """
    check_room(problem)
    room = getattr(import_module(f"{PROBLEMS}.{problem}"), "ROOM", None)
    if not isinstance(room, Room):
        raise SuiteError(f"problems/{problem}/__init__.py: expected ROOM, a Room")
    return room


def check_room(problem: str) -> None:
    """Raise SuiteError if a problem has no room; nothing of it is imported, since that takes time."""
    if not any((folder / problem / "__init__.py").exists() for folder in _find_folders()):
        raise SuiteError(f"the problem {problem} of {FILE_NAME} has no room: expected problems/{problem}/__init__.py")


def list_rooms() -> list[str]:
    """The problems that have a room, by id."""
    return sorted(path.parent.name for folder in _find_folders() for path in folder.glob("*/__init__.py"))


def _find_folders() -> list[Path]:
    """The folder of the problems: at the root of the assignment, or installed with the kit."""
    put_root_on_path()
    spec = find_spec(PROBLEMS)
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []

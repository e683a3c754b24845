"""Rooms: what ships about a problem besides its tests, in the folder of `cs336_kit/problems` that is named like it.

The engine, the board and the plugin name no problem: how a function is examined is found here. Where numbers alone do
not say whether an answer is right, `judge.py` beside the room says it, and the tests of the problem import that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from cs336_kit.engine.assignment import FILE_NAME, SuiteError
from cs336_kit.engine.case import Case

FOLDER = Path(__file__).parents[1] / "problems"

Functions = Mapping[str, Callable[..., Any]]  # by the names of the adapters that they stand for


@dataclass(frozen=True)
class Room:
    """All that ships about one problem.

    Args:
        examinations: for each of its adapters, what finds out by experiments what the student's function does wrong: it
            is called with the function and returns findings.
        on_paper: the smallest part of a wrong answer that can be checked on paper, in a few lines and never with the
            right answer. It is called with the case, the answer in float64, where it is wrong, and the size up to which
            a number may be taken for 0.
        look: a command that looks into one call, on the case that is put in the place of {case}.
        steps: for each of its adapters, the right program in named steps, called with what takes the steps (`Steps` of
            cs336_kit/way/steps.py) and the arguments.
        right: right programs, called as its adapters are. Tests that even these fail look at more than numbers.
        on_earlier: for each of its adapters, the right program that calls some adapters of the problems that this one
            needs. It raises NotImplementedError where right programs differ, since they draw random numbers.
    """

    examinations: Mapping[str, Callable[[Callable[..., Any]], list[Any]]]
    on_paper: Callable[[Case, Tensor, Tensor, float], Iterator[str]] | None = None
    look: str = ""
    steps: Functions = field(default_factory=dict)
    right: Functions = field(default_factory=dict)
    on_earlier: Mapping[str, Callable[[Functions], Callable[..., Any]]] = field(default_factory=dict)


@cache
def load_room(problem: str) -> Room:
    """The room of the problem with this id.

    Raises:
        SuiteError: it is missing, or not as it should be.
    """
    check_room(problem)
    room = getattr(import_module(f"cs336_kit.problems.{problem}"), "ROOM", None)
    if not isinstance(room, Room):
        raise SuiteError(f"cs336_kit/problems/{problem}/__init__.py: expected ROOM, a Room")
    return room


def check_room(problem: str) -> None:
    """Raise SuiteError if a problem has no room; nothing is imported, since that takes time."""
    if not (FOLDER / problem / "__init__.py").exists():
        raise SuiteError(f"the problem {problem} of {FILE_NAME} has no room: expected cs336_kit/problems/{problem}")

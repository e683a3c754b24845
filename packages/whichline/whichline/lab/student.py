"""The student's code, which is called through `adapters.py`, and the fixtures."""

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from whichline.checking.settings import undo_settings
from whichline.engine.annotations import check_annotations
from whichline.engine.assignment import find_needs, find_root, load_problems, student_files
from whichline.engine.case import Case, list_case_names, load_case
from whichline.engine.failure import describe
from whichline.engine.problem_folder import list_adapters, list_problem_folders
from whichline.engine.suite import Calls
from whichline.locate.reference import Reference, load_references


class Student:
    """The code in the folder of the assignment, or functions `own` of a notebook, by the adapters that they replace.

    click.ClickException if `adapters.py` cannot be imported; the message is that of a failing test.
    """

    def __init__(self, own: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.own = own
        self.adapters = Calls(SimpleNamespace(**(own or {})))
        self.root = find_root(Path.cwd())
        if own is None:
            sys.path.insert(0, str(self.root))  # `adapters.py` imports the student's package from beside it
            sys.modules.pop("adapters", None)  # it may have changed while a notebook is open
            check_annotations(student_files(), undo_settings)
            with self.in_words():
                self.adapters.adapters = importlib.import_module("adapters")

    @property
    def cell(self) -> str:
        """The file of the functions that replace adapters; "" if there are none."""
        codes = (getattr(function, "__code__", None) for function in (self.own or {}).values())
        return next((code.co_filename for code in codes if code), "")

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except (Exception, SystemExit) as error:
            failure = describe(error, self.root)
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None


@cache
def find_references() -> dict[str, Reference]:
    """The reference of each adapter."""
    return {call: each for problem in list_problem_folders() for call, each in load_references(problem).items()}


def list_earlier(root: Path, problem: str) -> list[Case]:
    """The fixtures of the problems that a problem builds on."""
    problems = load_problems(root)
    needs = find_needs(problems, problem) if problem in problems else []
    names = [name for need in needs for name in list_cases(root / "fixtures", list_adapters(need))]
    return [load_case(root / "fixtures", name) for name in names]


def list_cases(fixtures: Path, calls: Collection[str]) -> list[str]:
    """The fixtures of some adapters, one adapter after the other, without "-" first; CaseError if a file is damaged."""
    folders = {name: name.partition("/")[0] for name in list_case_names(fixtures, "*/*")}
    names = sorted(folders, key=lambda name: ("-" in folders[name], folders[name]))
    return [name for call in calls for name in names if load_case(fixtures, name).call == call]

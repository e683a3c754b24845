"""What ships of a problem besides its tests, in the folder `problems/ID/`.

`reference.py` is the reference, or imports its functions from `staff/reference.py`, which does not ship. The package
may have a function `on_paper`, which describes a mistake so that it can be checked on paper. If an output is not
unique, `judge.py` decides whether it is right, and the tests of the problem import it.
"""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichline.engine.assignment import FILE_NAME, PROBLEMS, SuiteError, put_root_on_path
from whichline.engine.toml_file import AssignmentError

REFERENCE = "reference"
STARTER = "starter-code"  # beside the problems in a kit; no problem can have this id
IS_ADAPTER = re.compile(r"run_\w+")


@cache
def read_reference(problem: str) -> str:
    """The source of a problem's reference, which is slow to import; SuiteError if the problem has none.

    If only staff have the reference, this is their file, or, in a folder without it, the file that ships.
    """
    for folder in _find_folders():
        if (path := folder / problem / f"{REFERENCE}.py").exists():
            text, kept = path.read_text(encoding="utf-8"), path.parent / "staff" / path.name
            return kept.read_text(encoding="utf-8") if is_kept(problem, text) and kept.exists() else text
    raise SuiteError(f"the problem {problem} of {FILE_NAME} has no {PROBLEMS}/{problem}/{REFERENCE}.py")


def is_kept(problem: str, source: str) -> bool:
    """Tell whether this reference imports its functions from a file that only staff have."""
    return f"from {PROBLEMS}.{problem}.staff.{REFERENCE} import" in source


@cache
def list_adapters(problem: str) -> tuple[str, ...]:
    """The adapters in the reference of a problem; this raises as `read_reference` does."""
    source = read_reference(problem) if problem else ""
    defines = re.findall(rf"^def ({IS_ADAPTER.pattern})", source, re.M)
    return tuple(re.findall(IS_ADAPTER, source) if is_kept(problem, source) else defines)


@cache
def find_on_paper(problem: str) -> Any:
    """The problem's function that shows the smallest part of a wrong output to check on paper; None if it has none.

    Its arguments are the test case, the output in float64, a mask of its wrong numbers, and the size up to which a
    number counts as 0. It returns a few lines, none with an expected output.
    """
    put_root_on_path()
    return getattr(import_module(f"{PROBLEMS}.{problem}"), "on_paper", None)


def list_problem_folders() -> list[str]:
    """The problems that have a reference, by id."""
    return sorted(path.parent.name for folder in _find_folders() for path in folder.glob(f"*/{REFERENCE}.py"))


def find_starter(name: str) -> bytes | None:
    """The starter code of a student's file, from the kit; None outside of a handout."""
    paths = (folder / STARTER / name for folder in _find_folders())
    return next((path.read_bytes() for path in paths if path.is_file()), None)


def _find_folders() -> list[Path]:
    """The folder of the problems: at the root of the assignment, or installed with the kit."""
    try:
        put_root_on_path()
    except AssignmentError:  # a plain suite has none
        return []
    spec = find_spec(PROBLEMS)
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []

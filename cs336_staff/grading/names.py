"""The names of the tests, without importing any of them: that would import torch, which takes seconds."""

import ast
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from cs336_staff.hidden.release import FOLDER as HIDDEN
from cs336_staff.hidden.release import left_out_tests

ANY = "any of those that are drawn"


def check_name(root: Path, name: str) -> None:
    """Raise click.UsageError if no test or test function has this name; any name of a drawn case is right here.

    Args:
        root: the folder of the assignment.
        name: of a test or a test function.
    """
    cases = cases_of_tests(root)
    if ANY not in cases.get(name.partition("[")[0], ()):
        check_among(name, {*cases, *(f"{function}[{case}]" for function in cases for case in cases[function])})


def cases_of_tests(root: Path) -> dict[str, list[str]]:
    """The names of the cases of each test function in both suites: none, those that are stored, or `ANY`."""
    folders = ((root / "tests", root / "fixtures"), (HIDDEN, HIDDEN / "fixtures"))
    found = [_cases(path, fixtures) for folder, fixtures in folders for path in folder.glob("test_*.py")]
    left_out = left_out_tests(root)
    return {function: cases for file in found for function, cases in file if function not in left_out}


def check_among(name: str, names: Iterable[str]) -> None:
    """Raise click.UsageError, which asks for the nearest, unless `name` is one of `names`."""
    if name not in names:
        near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.5)
        hint = f"is it {' or '.join(near)}?" if near else "results.json has the names"
        raise click.UsageError(f"no test is called {name}; {hint}")


def _cases(path: Path, fixtures: Path) -> Iterator[tuple[str, list[str]]]:
    """Each test function in a file, and what its cases are called."""
    for function in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            found: list[str] = []
            for mark in function.decorator_list:
                match mark:
                    case ast.Call(ast.Attribute(attr="cases"), [ast.Constant(str(pattern))]):
                        found += [case.stem for case in fixtures.glob(f"{pattern}.safetensors")]
                    case ast.Call(ast.Name("drawn")):
                        found.append(ANY)
            yield function.name, found

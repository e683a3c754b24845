"""`debug`, and what it shares with other commands of a lab. A command imports torch only when it runs."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from textwrap import fill, shorten
from typing import Any

import click
from rich.console import Console, RenderableType

from whichline.engine.assignment import find_root, load_problems, name_command
from whichline.lab import BadInput

WIDTH = 80


@click.command()
@click.option("--case", metavar="NAME", help="A stored case, or a folder of them.")
@click.option("--values", is_flag=True, help="Show below each line what came out.")
def debug(case: str | None, values: bool) -> None:
    """Mark each line of your code that one call runs; alone, list the cases.

    \b
    ✓ right    ✗ wrong    · computed from something wrong    no mark: not known
    """
    if call := find_case("debug", list_followed(), case):
        from whichline.lab.report import report_call, report_inputs
        from whichline.lab.student import Student

        print_parts(report_inputs(call, values))
        print_parts(report_call(call, Student(), values))


def list_followed() -> list[str]:
    """List the adapters of all problems."""
    from whichline.engine.problem_folder import list_adapters

    return [call for problem in load_problems(find_root(Path.cwd())) for call in list_adapters(problem)]


def find_case(command: str, calls: Sequence[str], case: str | None) -> Any:
    """Read a fixture of some adapters; without a name, or with a folder's name, list the fixtures instead.

    It raises BadInput if there is no such fixture, and CaseError if its file is damaged.
    """
    from whichline.engine.case import load_case
    from whichline.lab.student import list_cases

    fixtures = find_root(Path.cwd()) / "fixtures"
    names = list_cases(fixtures, calls)
    if case in names:
        return load_case(fixtures, case)
    inside = [name for name in names if case and name.startswith(f"{case.rstrip('/')}/")]
    if case and not inside:
        near = get_close_matches(case, names, 1)
        instead = f"is it {near[0]}?" if near else f"{name_command(command)} lists the cases"
        raise BadInput(_fill(f"Error: {command} has no case {case}: {instead}").removeprefix("Error: "))
    for line in [_fill(" ".join(inside))] if inside else _list_folders(names):
        click.echo(line)
    shown = (inside or names)[0]
    folder = shown.partition("/")[0]
    click.echo(f"\n{name_command(f'{command} --case {shown}')}")
    if not inside:
        click.echo(f"{name_command(f'{command} --case {folder}')}  lists all the cases of a folder")
    return None


def _list_folders(names: Iterable[str]) -> Iterator[str]:
    """A line for each folder with its first fixtures, and a line for other folders that begin with the same word."""
    cases = {folder: [*inside] for folder, inside in groupby(names, key=lambda name: name.partition("/")[0])}
    groups = [[*folders] for _, folders in groupby(cases, key=lambda folder: folder.partition("-")[0])]
    width = max(len(first) for first, *_ in groups) + 2
    for first, *more in groups:
        own = " ".join(name.partition("/")[2] for name in cases[first])
        yield f"{first + '/':<{width}}" + shorten(own, WIDTH - width, placeholder=" …", break_on_hyphens=False)
        if more:
            yield _fill(f"  also {'/ '.join(more)}/", "       ")


def _fill(text: str, indent: str = "  ") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print each part at once, so that an exception in the student's code hides nothing that came before it."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)

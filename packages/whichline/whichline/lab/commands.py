"""`debug`, and what other commands for looking at calls share. What imports torch is imported when it runs."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from rich.console import Console, RenderableType

from whichline.engine.assignment import find_root, load_problems, name_command

MOST_NAMED = 5  # cases of one folder


@click.command()
@click.option("--case", metavar="NAME", help="A stored case.")
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
    """The adapters whose right program ships in steps."""
    from whichline.engine.room import load_room

    return [call for problem in load_problems(find_root(Path.cwd())) for call in load_room(problem).steps]


def find_case(command: str, calls: Sequence[str], case: str | None) -> Any:
    """Read a stored case of some adapters; if none is named, list them, and how to name one."""
    from whichline.lab.student import list_cases, read_case

    fixtures = find_root(Path.cwd()) / "fixtures"
    if case:
        return read_case(fixtures, case, calls)
    names = list_cases(fixtures, calls)
    folders = groupby(names, key=lambda name: name.partition("/")[0])
    named = ((folder, [name.partition("/")[2] for name in cases]) for folder, cases in folders)
    said = (f"{folder}/ {' '.join(cases[:MOST_NAMED])}{' …' * (len(cases) > MOST_NAMED)}" for folder, cases in named)
    click.echo(fill("   ".join(said), 80, break_on_hyphens=False))
    click.echo(f"\n{name_command(f'{command} --case {names[0]}')}")
    return None


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print each part as soon as it is known: what comes before an error of the student's is worth reading."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)

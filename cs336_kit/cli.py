"""The `cs336` command. Nothing here imports torch until a command needs it, so that `--help` is instant."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.console import Console

from cs336_kit.assignment import AssignmentError, find_root, load_problems


class Commands(click.Group):
    """The commands of the kit, and those that other packages register as entry points under `cs336.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *entry_points(group="cs336.commands").names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if command := super().get_command(ctx, cmd_name):
            return command
        for entry_point in entry_points(group="cs336.commands", name=cmd_name):
            return entry_point.load()
        return None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except AssignmentError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands)
@click.version_option(package_name="cs336_basics")
def cs336() -> None:
    """The attention assignment: check your work."""


@cs336.command()
@click.argument("problem", nargs=-1)
def check(problem: tuple[str, ...]) -> None:
    """Run the public tests of each PROBLEM (default: all) and print the board.

    The exit status is 0 if every test passed, 1 if not.
    """
    from cs336_kit.board import render, score
    from cs336_kit.check import SuiteError, run_public_suite

    root = find_root(Path.cwd())
    problems = load_problems(root)
    if unknown := [name for name in problem if name not in problems]:
        raise click.UsageError(f"no problem is called {unknown[0]}; the problems are {', '.join(problems)}")
    chosen = [problems[name] for name in dict.fromkeys(problem)] or list(problems.values())

    console = Console()
    try:
        with console.status("Importing torch and running the public tests"):
            verdicts = run_public_suite(root, [test for each in chosen for test in each.tests])
    except SuiteError as error:
        raise click.ClickException(f"the tests could not start\n{error}") from None
    scores = score(chosen, verdicts)
    console.print(render(scores))
    sys.exit(any(result.first_failure for result in scores))

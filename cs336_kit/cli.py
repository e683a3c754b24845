"""The `cs336` command. Nothing here imports torch until a command needs it, so that `--help` is instant."""

import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.console import Console

from cs336_kit.assignment import AssignmentError, Problem, find_root, load_problems


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
@click.option("--watch", is_flag=True, help="Show the board again after every save.")
@click.option("--poll", is_flag=True, help="With --watch: look for saves, for file systems that do not report them.")
@click.option("--spare", is_flag=True, help="With --watch: run each time in a warm process, not in a fork of one.")
def check(problem: tuple[str, ...], watch: bool, poll: bool, spare: bool) -> None:
    """Run the public tests of each PROBLEM (default: all) and print the board.

    The exit status is 0 if every test passed, 1 if not.
    """
    root = find_root(Path.cwd())
    problems = load_problems(root)
    chosen = [_find_problem(problems, name) for name in dict.fromkeys(problem)] or list(problems.values())
    if watch:
        _watch(root, chosen, poll, spare or sys.platform != "linux")
        return
    if poll or spare:
        raise click.ClickException("--poll and --spare go with --watch")

    from cs336_kit.board import render, score
    from cs336_kit.check import SuiteError, run_public_suite

    console = Console()
    try:
        with console.status("Importing torch and running the public tests"):
            verdicts = run_public_suite(root, [test for each in chosen for test in each.tests])
    except SuiteError as error:
        raise click.ClickException(f"the tests could not start\n{error}") from None
    scores = score(chosen, verdicts)
    console.print(render(scores))
    sys.exit(any(result.first_failure for result in scores))


def _watch(root: Path, chosen: list[Problem], poll: bool, spare: bool) -> None:
    from cs336_kit.watch import watch

    with suppress(KeyboardInterrupt):
        watch(root, [problem.id for problem in chosen], Console(), poll=poll, spare=spare)


@cs336.command()
@click.argument("problem")
@click.option("--step", default=1, show_default=True, help="Show the hints up to this one.")
def hint(problem: str, step: int) -> None:
    """Print the first hint for PROBLEM, a question; each further step says more."""
    from cs336_kit.hint import render_hints

    chosen = _find_problem(load_problems(find_root(Path.cwd())), problem)
    if not 1 <= step <= len(chosen.hints):
        raise click.ClickException(f"{chosen.id} has hints 1 to {len(chosen.hints)}, not {step}")
    console = Console()
    console.print(render_hints(chosen, step))
    if step < len(chosen.hints):
        console.print(f"uv run cs336 hint {chosen.id} --step {step + 1} says more", style="dim", highlight=False)


def _find_problem(problems: dict[str, Problem], name: str) -> Problem:
    try:
        return problems[name]
    except KeyError:
        raise click.ClickException(f"no problem is called {name}; the problems are {', '.join(problems)}") from None

"""The `cs336` command. Nothing here imports torch until a command needs it, so that `--help` is instant."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.console import Console

from cs336_kit.checking.board import Verdict, render, score
from cs336_kit.engine.assignment import AssignmentError, Problem, find_root, load_problems
from cs336_kit.handing_in.archive import ArchiveError
from cs336_kit.lab.bench import bench
from cs336_kit.lab.debug import debug
from cs336_kit.lab.flow import flow
from cs336_kit.lab.show import show
from cs336_kit.lab.train import train


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
        except (ArchiveError, AssignmentError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands)
@click.version_option(package_name="cs336_basics")
def cs336() -> None:
    """The attention assignment: check your work, and look at attention."""


cs336.add_command(bench)
cs336.add_command(debug)
cs336.add_command(flow)
cs336.add_command(show)
cs336.add_command(train)


@cs336.command()
@click.argument("problem", nargs=-1)
@click.option("--watch", is_flag=True, help="Show the board again after every save.")
@click.option("--poll", is_flag=True, help="With --watch: look for saves, for file systems that do not report them.")
@click.option("--spare", is_flag=True, help="With --watch: run each time in a warm process, not in a fork of one.")
def check(problem: tuple[str, ...], watch: bool, poll: bool, spare: bool) -> None:
    """Run the public tests of each PROBLEM (default: all) and print the board.

    The exit status is 0 if every test passed, 1 if not. Without PROBLEM, tests of bonus problems may fail.
    """
    root = find_root(Path.cwd())
    problems = load_problems(root)
    chosen = [_find_problem(problems, name) for name in dict.fromkeys(problem)] or list(problems.values())
    if watch:
        _watch(root, chosen, poll, spare or sys.platform != "linux")
        return
    if poll or spare:
        raise click.ClickException("--poll and --spare go with --watch")

    from cs336_kit.checking.check import Stopped

    console = Console()
    try:
        verdicts = _run_public_suite(root, chosen, console)
    except Stopped as stopped:
        if not stopped.verdicts:
            raise click.ClickException(
                "you pressed Ctrl-C before the first test: is there an endless loop at the top of a file?"
            ) from None
        verdicts = stopped.verdicts
    scores = score(chosen, verdicts)
    console.print(render(scores))
    sys.exit(any(result.first_failure for result in scores if problem or not result.problem.bonus))


def _run_public_suite(root: Path, problems: Iterable[Problem], console: Console) -> list[Verdict]:
    from cs336_kit.checking.check import SuiteError, run_public_suite

    try:
        with console.status("Importing torch and running the public tests"):
            return run_public_suite(root, [test for problem in problems for test in problem.tests])
    except SuiteError as error:
        raise click.ClickException(f"the tests could not start\n{error}") from None


def _watch(root: Path, chosen: list[Problem], poll: bool, spare: bool) -> None:
    from cs336_kit.checking.watch import watch

    with suppress(KeyboardInterrupt):
        watch(root, [problem.id for problem in chosen], Console(), poll=poll, spare=spare)


@cs336.command()
@click.argument("problem")
@click.option("--step", default=1, show_default=True, help="Show the hints up to this one.")
def hint(problem: str, step: int) -> None:
    """Print the first hint for PROBLEM, a question; each further step says more."""
    from cs336_kit.checking.hint import render_hints

    chosen = _find_problem(load_problems(find_root(Path.cwd())), problem)
    if not 1 <= step <= len(chosen.hints):
        raise click.ClickException(f"{chosen.id} has hints 1 to {len(chosen.hints)}, not {step}")
    console = Console()
    console.print(render_hints(chosen, step))
    if step < len(chosen.hints):
        console.print(f"uv run cs336 hint {chosen.id} --step {step + 1} says more", style="dim", highlight=False)


@cs336.command()
@click.option("--check", "archive", metavar="ZIP", type=click.Path(path_type=Path), help="Read a submission back.")
def submit(archive: Path | None) -> None:
    """Run the public tests and write submission.zip, the file to hand in."""
    from cs336_kit.handing_in.submit import (
        FILE_NAME,
        SubmissionError,
        collect,
        left_out,
        read_submission,
        write_submission,
    )

    if archive:
        files, board = read_submission(archive)
        click.echo(f"{archive} holds\n" + _indented(files) + "\nwith these public tests\n" + _indented(board))
        return
    root = find_root(Path.cwd())
    problems = load_problems(root)
    try:
        files = collect(root, problems)
    except SubmissionError as error:
        raise click.ClickException(f"nothing was written: {error}") from None
    click.echo(f"Goes in\n{_indented(files)}\nStays out\n{_indented(left_out(root))}\n")
    console = Console()
    scores = score(problems.values(), _run_public_suite(root, problems.values(), console))
    console.print(render(scores))
    write_submission(root / FILE_NAME, files, scores)
    click.echo(f"\n{root / FILE_NAME} is written: hand it in")


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


@cs336.command()
@click.argument("archive", metavar="ZIP", type=click.Path(path_type=Path))
def update(archive: Path) -> None:
    """Put an update of the course's files in place; what you wrote is not touched."""
    from cs336_kit.handing_in.update import apply_update, read_update

    new = read_update(archive)
    changes, copies = apply_update(find_root(Path.cwd()), new)
    for change in changes:
        lines = " +{} -{}".format(*change.lines) if change.lines else ""
        click.echo(f"{change.kind:<8} {change.name}{lines}")
    click.echo(f"Files changed: {len(changes)}; this is release {new.version}")
    if any(change.kind != "new" for change in changes):
        click.echo(f"What was there before is in {copies.name}/")


def _find_problem(problems: dict[str, Problem], name: str) -> Problem:
    try:
        return problems[name]
    except KeyError:
        raise click.ClickException(f"no problem is called {name}; the problems are {', '.join(problems)}") from None

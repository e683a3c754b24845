"""`submit`, `reset` and `update`."""

from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console

from whichline.checking.board import deduct, render, score
from whichline.checking.runner import run_once
from whichline.engine.assignment import ADAPTERS, find_problem, find_root, load_problems
from whichline.engine.kit import find_wheels, is_installed
from whichline.submission.reset import list_written
from whichline.submission.reset import reset as reset_files
from whichline.submission.submit import FILE_NAME, SubmissionError, collect, read_submission, unpacked, write_submission
from whichline.submission.update import apply_update, read_update


@click.command()
@click.option("--check", "archive", metavar="ZIP", type=click.Path(path_type=Path), help="Read a submission back.")
def submit(archive: Path | None) -> None:
    """Run the public tests and write submission.zip, the file to hand in.

    The tests run as in grading: on what is handed in, without other files, network or processes.
    """
    if archive:
        files, board = read_submission(archive)
        click.echo(f"{archive} holds\n" + _indent(files) + "\nwith these public tests\n" + _indent(board))
        return
    root = find_root(Path.cwd())
    problems = load_problems(root)
    try:
        files = collect(root, problems)
    except SubmissionError as error:
        raise click.ClickException(f"nothing was written: {error}") from None
    click.echo(f"Goes in\n{_indent(files)}\n")
    console = Console()
    with unpacked(root, files) as folder:
        run = run_once(folder, list(problems), console, how="as graded")
    if run.status is None:
        raise click.Abort
    scores = deduct(score(problems.values(), run.results_or_error(), run.explanations), run.notes.deducted)
    console.print(render(scores, run, root))
    if not any(each.passed for each in scores):
        click.secho("\nThis submission would earn 0 points: none of the public tests passes yet.", fg="yellow")
    write_submission(root / FILE_NAME, files, scores)
    if unfinished := [each for each in scores if each.state != "passed" and not each.problem.bonus]:
        lines = (f"{each.problem.id}: {each.passed} of {len(each.results)} tests pass" for each in unfinished)
        click.secho(f"\nNot done yet:\n{_indent(lines)}", fg="yellow")
        click.echo("The tests ran as in grading: without other files, network or processes.")
        click.echo("You can hand this in now, go on working, and hand in again until the deadline.")
    click.echo(f"\n{root / FILE_NAME} is written: hand it in")


def _indent(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


@click.command()
@click.argument("problem")
def reset(problem: str) -> None:
    """Begin PROBLEM again with its starter code; what you wrote is kept aside.

    The adapters stay as they are. Where a file has other problems in it, you are asked first.
    """
    root = find_root(Path.cwd())
    problems = load_problems(root)
    chosen = find_problem(problems, problem)
    written = list_written(root, chosen)
    others = [each.id for each in problems.values() if each != chosen and written.keys() & {*each.files}]
    if others:
        also = f"{' and '.join(written)} also has what you wrote for {', '.join(others)}"
        click.confirm(f"{also}. Reset it all?", abort=True)
    for name, kept in reset_files(root, written):
        click.echo(f"{name} is the starter code again")
        if kept:
            click.echo(f"  what you wrote is in {kept}")
    click.echo(f"{ADAPTERS} is as you left it")


@click.command()
@click.argument("archive", metavar="ZIP", type=click.Path(path_type=Path))
def update(archive: Path) -> None:
    """Put an update of the course's files in place; what you wrote is not touched."""
    new = read_update(archive)
    root = find_root(Path.cwd())
    changes, copies = apply_update(root, new)
    for name, kind in changes.items():
        click.echo(f"{kind:<8} {name}")
    click.echo(f"Files changed: {len(changes)}; this is release {new.version}")
    if copies.exists():
        click.echo(f"The files as they were before are in {copies.name}/")
    for wheel in find_wheels(root):
        if not is_installed(wheel):
            click.echo("The next uv run installs the new kit. With UV_NO_SYNC, run this:")
            click.echo(f"uv pip install {wheel.relative_to(root).as_posix()}")

"""The commands under `cs336 staff`."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cs336_kit.assignment import find_root

if TYPE_CHECKING:
    from cs336_staff.grades import Attempt
    from cs336_staff.grading.sandbox import Layer


@click.group()
def staff() -> None:
    """Fixtures, grading and the handout: for staff."""


@staff.command()
@click.option("--check", is_flag=True, help="Recompute and compare; write nothing.")
def fixtures(check: bool) -> None:
    """Write the stored cases."""
    from cs336_staff.cases import HIDDEN, PUBLIC
    from cs336_staff.fixtures import check_fixtures, write_fixtures
    from cs336_staff.hidden.release import FOLDER, load_release

    root = find_root(Path.cwd())
    if not check:
        write_fixtures(root / "fixtures", PUBLIC)
        write_fixtures(FOLDER / "fixtures", HIDDEN, load_release().seed)
        click.echo(f"{len(PUBLIC)} public and {len(HIDDEN)} hidden cases written")
        return
    complaints = [*check_fixtures(root / "fixtures", PUBLIC), *check_fixtures(FOLDER / "fixtures", HIDDEN)]
    if complaints:
        raise click.ClickException("\n".join(complaints))
    click.echo(f"{len(PUBLIC)} public and {len(HIDDEN)} hidden cases are what the references give")


@staff.command()
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True)
@click.option("--sandbox", type=click.Choice(["auto", "bubblewrap", "process", "none"]), default="auto")
@click.option("--jobs", type=click.IntRange(1), help="How many at the same time.  [default: one for each core]")
@click.option("--rerun", is_flag=True, help="Grade again what is graded already.")
@click.option("--attempt", type=click.Choice(["latest", "best"]), default="latest", show_default=True)
@click.option("--due", type=click.DateTime(), help="The deadline in UTC, for the column of late days.")
@click.option("--groups", type=click.Path(exists=True, path_type=Path), help="The groups, as Canvas exports them.")
@click.option("--roster", type=click.Path(exists=True, path_type=Path), help="The gradebook, as Canvas exports it.")
@click.option("--column", default="Attention", show_default=True, help="The assignment's column in the roster.")
def grade(
    submission: tuple[Path, ...],
    out: Path,
    sandbox: "Layer | Literal['auto']",
    jobs: int | None,
    rerun: bool,
    attempt: "Attempt",
    due: datetime | None,
    groups: Path | None,
    roster: Path | None,
    column: str,
) -> None:
    """Grade each SUBMISSION, a folder, a zip archive or a Python file, in a sandbox.

    Run the same command again after an interruption: what is graded is not graded twice. The exit status is 3 when a
    submission could not be graded for a reason of ours.
    """
    from cs336_staff.grading import command

    course = command.Class(attempt, due and due.replace(tzinfo=UTC), groups, roster, column)
    sys.exit(command.grade(submission, out, sandbox, jobs or os.cpu_count() or 1, rerun, course))


@staff.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("autograder.zip"))
def gradescope(output: Path) -> None:
    """Write the autograder that Gradescope runs."""
    from cs336_staff.gradescope import write_autograder

    write_autograder(find_root(Path.cwd()), output)
    click.echo(f"{output} written; its README says what the container needs")


@staff.command()
@click.argument("submission", type=click.Path(exists=True, path_type=Path))
@click.argument("test")
@click.option("--sandbox", type=click.Choice(["auto", "bubblewrap", "process", "none"]), default="auto")
def reproduce(submission: Path, test: str, sandbox: "Layer | Literal['auto']") -> None:
    """Run one TEST of one SUBMISSION again and print inputs, answer and reference.

    TEST is a name of results.json, such as test_softmax[1d], or a test function with all its cases.
    """
    from cs336_staff.grading import reproduce

    reproduce.reproduce(submission, test, sandbox)

"""The commands under `cs336 staff`."""

import os
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cs336_kit.engine.assignment import find_root

if TYPE_CHECKING:
    from cs336_staff.grading.exports import Attempt
    from cs336_staff.sandbox.confinement import Layer


@click.group()
def staff() -> None:
    """Fixtures, grading and the handout: for staff."""


@staff.command()
@click.option("--check", is_flag=True, help="Recompute and compare; write nothing.")
def fixtures(check: bool) -> None:
    """Write the stored cases."""
    from cs336_staff.authoring.cases.hidden import HIDDEN
    from cs336_staff.authoring.cases.public import PUBLIC
    from cs336_staff.authoring.stored_cases import check_fixtures, write_fixtures
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
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path))
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
    _need_linux()
    from cs336_staff.grading import command

    course = command.Class(attempt, due and due.replace(tzinfo=UTC), groups, roster, column)
    sys.exit(command.grade(submission, out, sandbox, jobs or os.cpu_count() or 1, rerun, course))


@staff.command()
@click.argument("results", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("results"))
def misconceptions(results: Path) -> None:
    """Count which misconceptions a class had, in the gradebook of RESULTS, and write misconceptions.csv there."""
    from rich.console import Console

    from cs336_kit.examination.diagnosis import load_mistakes
    from cs336_staff.grading.class_misconceptions import FILE_NAME, count_mistakes, mistakes_table, write_mistakes
    from cs336_staff.grading.exports import RosterError, grades
    from cs336_staff.grading.gradebook import Gradebook, GradebookError

    known = load_mistakes(find_root(Path.cwd()) / "fixtures")
    try:
        with Gradebook.of_results(results) as gradebook:
            counts = count_mistakes(grades(gradebook))
    except (GradebookError, RosterError) as error:
        raise click.ClickException(str(error)) from None
    write_mistakes(results / FILE_NAME, counts, known)
    Console().print(mistakes_table(counts, known))


@staff.command()
@click.argument("submission")
@click.argument("problem", required=False)
@click.option("--because", metavar="TEXT", help="The reason, for the student and the gradebook.")
@click.option("--undo", is_flag=True, help="Take it back.")
@click.option("--out", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("results"))
def overrule(submission: str, problem: str | None, because: str | None, undo: bool, out: Path) -> None:
    """Count right answers of SUBMISSION, by its name in the results, that are a violation of the rules.

    For one PROBLEM, or for all in which it has violations. It holds for this content, also when it is graded again.
    """
    if bool(because) == undo:
        raise click.UsageError("expected --because TEXT, or --undo")
    from cs336_staff.grading import overrule

    overrule.overrule(submission, problem, None if undo else because, out)


@staff.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("autograder.zip"))
def gradescope(output: Path) -> None:
    """Write the autograder that Gradescope runs."""
    from cs336_staff.release.gradescope import write_autograder

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
    _need_linux()
    from cs336_staff.grading import reproduce

    reproduce.reproduce(submission, test, sandbox)


@staff.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--since", type=click.Path(path_type=Path), metavar="ZIP", help="The zip of the release before this one.")
def handout(out: Path, since: Path | None) -> None:
    """Cut the solutions out, write what students receive to OUT, and try it.

    OUT gets a git repository of one commit in tree/, the same as a zip, and an archive for `cs336 update`.
    """
    from cs336_kit.handing_in.archive import ArchiveError, read_archive
    from cs336_staff.release.handout import MANIFEST, HandoutError, make_handout, write_handout
    from cs336_staff.release.trial_run import TryoutError, try_out

    root = find_root(Path.cwd())
    try:
        previous = read_archive(since, MANIFEST)[1] if since else {}
        release = make_handout(root, version("cs336_basics"))
        write_handout(release, out, previous)
        click.echo(f"{len(release.files)} files written to {out}")
        for step in try_out(root, out):
            click.echo(f"tried: {step}")
    except (ArchiveError, HandoutError, TryoutError) as error:
        raise click.ClickException(str(error)) from None


@staff.command()
def verify() -> None:
    """Prove the suites: fixtures, right styles, misconceptions caught and named, mutants of the solution killed.

    The exit status is 1 if anything is not as it should be.
    """
    import torch
    from rich.console import Console

    from cs336_kit.engine.assignment import load_problems
    from cs336_staff.authoring.cases.hidden import HIDDEN
    from cs336_staff.authoring.cases.public import PUBLIC
    from cs336_staff.authoring.mutants import equivalents, verify_mutants
    from cs336_staff.authoring.stored_cases import check_fixtures
    from cs336_staff.authoring.verify import STYLES, coverage_table, verify_correct, verify_misconceptions
    from cs336_staff.hidden.release import FOLDER

    torch.set_num_threads(1)  # the cases are small: threads cost more than they give
    root = find_root(Path.cwd())
    complaints = [*check_fixtures(root / "fixtures", PUBLIC), *check_fixtures(FOLDER / "fixtures", HIDDEN)]
    complaints += verify_correct(root)

    findings = verify_misconceptions(root)
    tests = [test for problem in load_problems(root).values() for test in problem.tests]
    table = coverage_table(findings, tests)
    console = Console(width=140)  # a column for each test
    console.print(table)
    for number, test in enumerate(tests, start=1):
        click.echo(f"{number:>3}  {test}")
    complaints += [f"{finding.id} {finding.complaint}" for finding in findings if finding.complaint]

    mutants, survivors = verify_mutants(root)
    complaints += survivors
    if complaints:
        raise click.ClickException("\n".join(complaints))
    click.echo(f"\n{len(PUBLIC)} public and {len(HIDDEN)} hidden cases are what the references give")
    click.echo(f"{len(STYLES)} styles of right implementations pass both suites")
    click.echo(f"{len(findings)} misconceptions are caught by both suites and named, by their own name alone")
    listed = len(equivalents())
    click.echo(f"{mutants - listed} mutants of the solution are killed, {listed} are equivalent for a stated reason")


def _need_linux() -> None:
    if sys.platform != "linux":
        raise click.ClickException(
            "grading needs Linux: the sandbox and the limits are its kernel's, those of --sandbox none too. "
            "Use a Linux machine, or WSL on Windows"
        )

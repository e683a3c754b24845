"""`cs336 staff grade`, `findings` and `reproduce`. What imports torch is imported when it is needed."""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from cs336_kit.engine.assignment import SuiteError
from cs336_staff.grading.changes import RESULTS
from cs336_staff.grading.class_findings import FILE_NAME, count_findings, findings_table, write_findings
from cs336_staff.grading.course import find_checked_root, load_course
from cs336_staff.grading.exports import RosterError, check_lists, grades, write_course
from cs336_staff.grading.gradebook import Gradebook, GradebookError
from cs336_staff.grading.host import Graders, HostError
from cs336_staff.grading.names import check_name
from cs336_staff.grading.ready import ready
from cs336_staff.hidden.release import REHEARSAL
from cs336_staff.sandbox.confinement import Layer, Sandbox, SandboxError
from cs336_staff.sandbox.submission import Refused, take_in

if TYPE_CHECKING:
    from distributed import Client

    from cs336_staff.grading.suite import GradedSuite

FAULTS = 3  # the exit status when something of ours went wrong
INTERRUPTED = 130  # by Ctrl-C, as shells have it
COMMONEST = 10  # findings that are printed; the file has all
SANDBOXES = click.Choice(["auto", "bubblewrap", "process", "none"])


@click.command()
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True)
@click.option("--sandbox", "layer", type=SANDBOXES, default="auto")
@click.option("--jobs", type=click.IntRange(1), help="How many at the same time.  [default: one for each core]")
@click.option("--cluster", metavar="ADDRESS", help="Grade on the workers of this Dask scheduler; or its file.")
@click.option("--rerun", is_flag=True, help="Grade again what has already been graded.")
def grade(
    submission: tuple[Path, ...],
    out: Path,
    layer: Layer,
    jobs: int | None,
    cluster: str | None,
    rerun: bool,
) -> None:
    """Grade each SUBMISSION, a folder, a zip or tar archive or a Python file, in a sandbox.

    Run the same command again after an interruption: nothing is graded twice. Two submissions of one student
    are an error: grade attempts one after another. Deadline, late days and lists of students are in
    cs336_staff/course.toml. The exit status is 3 if a submission could not be graded and
    the fault is not its own.
    """
    if cluster and jobs:
        raise click.UsageError(
            "--jobs is for this machine; the workers of a cluster grade one for each of their threads"
        )
    _need_linux()
    console = Console()
    root = find_checked_root()
    course = load_course(root)
    try:
        check_lists(course)
        with _connect(cluster) if cluster else nullcontext() as client, ready(root, layer) as (suite, sandbox):
            from cs336_staff.grading import batch, show

            if suite.rehearsal:
                console.print(Text(REHEARSAL, "bold red"))
            _print_layer(console, sandbox)
            with (
                _graders(client, suite, sandbox, jobs, console) as graders,
                show.progress_bar(console) as progress,
            ):
                done = batch.grade_by(graders, suite, submission, out, rerun, progress)
        with Gradebook(out / "gradebook.sqlite") as gradebook:
            graded = [each for each in gradebook.latest(texts=False) if each.submission in done.names]
            board = show.board(graded[0], suite.problems) if len(graded) == 1 else show.boards(graded, suite.problems)
            console.print(board)
            for line in show.findings(graded):
                console.print(Text(line, "yellow"))
            for fault in done.faults:
                blame = "NOT GRADED, by no fault of the submission"
                console.print(Text(f"{blame}: {fault.submission}: {fault.reason}", "red"))
            found = write_course(console, gradebook, suite.problems, out, course)
            counts = count_findings(found)
            write_findings(out / FILE_NAME, counts)
            if counts and len(found) > 1:
                console.print(findings_table(counts[:COMMONEST]))
        console.print(Text(f"Reports, gradebook and grades are in {out}"))
    except (SuiteError, SandboxError, HostError, GradebookError, RosterError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error}; what is in {out} is whole, run the same command to go on") from None
    except KeyboardInterrupt:
        console.print(Text(f"Interrupted. What is graded is in {out}: run the same command to go on.", "yellow"))
        sys.exit(INTERRUPTED)
    sys.exit(FAULTS if done.faults else 0)


@click.command()
@click.argument("results", type=RESULTS, default=Path("results"))
def findings(results: Path) -> None:
    """Count what the examinations found in a class, in the gradebook of RESULTS, and write findings.csv there."""
    course = load_course(find_checked_root())
    try:
        with Gradebook.of_results(results) as gradebook:
            counts = count_findings(grades(gradebook, course))
    except (GradebookError, RosterError) as error:
        raise click.ClickException(str(error)) from None
    write_findings(results / FILE_NAME, counts)
    Console().print(findings_table(counts))


@click.command()
@click.argument("submission", type=click.Path(exists=True, path_type=Path))
@click.argument("test")
@click.option("--sandbox", "layer", type=SANDBOXES, default="auto")
def reproduce(submission: Path, test: str, layer: Layer) -> None:
    """Run one TEST of one SUBMISSION again and print inputs, answer and reference.

    TEST is a name of results.json, such as test_softmax[1d], or a test function with all its cases.
    """
    _need_linux()
    root = find_checked_root()
    name = test.rpartition(": ")[2]  # in results.json the problem stands before it
    check_name(root, name)
    try:
        taken_in = take_in(submission)
        with ready(root, layer, name) as (suite, sandbox):
            from cs336_staff.grading.reproduce import reproduce_test

            reproduce_test(suite, sandbox, taken_in, name)
    except (SuiteError, SandboxError, Refused) as error:
        raise click.ClickException(str(error)) from None


def _connect(cluster: str) -> AbstractContextManager["Client"]:
    try:
        from cs336_staff.grading.cluster import connect
    except ModuleNotFoundError:
        raise HostError("--cluster needs dask.distributed, here and on every host: uv sync --extra cluster") from None
    return connect(cluster)


def _graders(
    client: "Client | None", suite: "GradedSuite", sandbox: Sandbox, jobs: int | None, console: Console
) -> AbstractContextManager[Graders]:
    from cs336_staff.grading.forks import graders_here, identity, layer_of

    if client is None:
        return graders_here(suite, sandbox, suite.limits, jobs or os.cpu_count() or 1)
    from cs336_staff.grading.cluster import Cluster, Needs

    needs = Needs(identity(suite), layer_of(sandbox))
    return nullcontext(Cluster(client, needs, lambda line: console.print(Text(line), soft_wrap=True)).graders)


def _print_layer(console: Console, sandbox: Sandbox) -> None:
    achieved = sandbox.achieved
    console.print(Text(f"Sandbox: {achieved.layer} ({', '.join(achieved.parts) or 'nothing'})"))
    for note in achieved.notes:
        console.print(Text(f"  {note}", "yellow"))


def _need_linux() -> None:
    if sys.platform != "linux":
        raise click.ClickException(
            "grading needs Linux: the sandbox and the limits are its kernel's, those of --sandbox none too. "
            "Use a Linux machine, or WSL on Windows"
        )

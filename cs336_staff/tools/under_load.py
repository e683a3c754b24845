"""Checking that no verdict depends on the load: submissions are graded twice, the second time beside busy processes.

uv run python -m cs336_staff.tools.under_load cs336_staff/tests/blind/*/*.py
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading.batch import grade
from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.grading.report import feedback
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox.confinement import Sandbox, start
from cs336_staff.sandbox.worker import Limits


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy; each process has a session of its own, and so a share of the processors of its own."""
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]  # not without us
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def verdicts(
    suite: GradedSuite, sandbox: Sandbox, paths: Sequence[Path], jobs: int = 2, limits: Limits | None = None
) -> dict[str, str]:
    """Every result and the feedback of each submission, by name, without how long anything took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        done = grade(suite, sandbox, paths, out, jobs, limits=limits)
        if done.faults:
            raise click.ClickException(f"not graded: {done.faults}")
        with Gradebook(out / "gradebook.sqlite") as gradebook:
            return {grading.submission: _verdict(grading, suite) for grading in gradebook.latest()}


def _verdict(grading: Grading, suite: GradedSuite) -> str:
    results = [replace(result, seconds=0) for result in grading.results]
    same = replace(grading, results=results, seconds=0, started=datetime.fromtimestamp(0, UTC))
    return f"{same}\n{feedback(same, suite.problems)}"


@click.command()
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--processes", default=8, show_default=True, help="That are busy the second time.")
def main(submission: tuple[Path, ...], processes: int) -> None:
    """Grade each SUBMISSION twice and name those whose verdict is another the second time."""
    suite = load_graded_suite(find_root(Path.cwd()))
    with start() as sandbox:
        first = verdicts(suite, sandbox, submission)
        with busy(processes):
            second = verdicts(suite, sandbox, submission)
    if changed := [name for name, verdict in first.items() if second[name] != verdict]:
        raise click.ClickException(f"{len(changed)} of {len(first)} have another verdict: {', '.join(changed)}")
    click.echo(f"{len(first)} submissions have the same verdict, byte for byte, beside {processes} busy processes")


if __name__ == "__main__":
    main()

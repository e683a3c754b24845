"""Batches killed with SIGKILL at random moments and resumed: is every submission graded once, and nothing lost?

python -m cs336_staff.benchmarks.interruptions --batches 50 --submissions 100
"""

import math
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import click

from cs336_kit.assignment import find_root
from cs336_staff.benchmarks.submissions import write_submissions
from cs336_staff.grading import sandbox
from cs336_staff.grading.batch import grade
from cs336_staff.grading.suite import Suite, with_suite


@click.command()
@click.option("--batches", default=5, show_default=True)
@click.option("--submissions", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the moments of the kills.")
def interruptions(batches: int, submissions: int, seed: int) -> None:
    """Print what became of each batch; the exit status is 1 if a verdict was lost, doubled or changed."""
    root = find_root(Path.cwd())
    moments = random.Random(seed)  # noqa: S311 (no secret)
    sound = True

    def use(suite: Suite) -> None:
        nonlocal sound
        with sandbox.start() as box, tempfile.TemporaryDirectory() as folder:
            paths = write_submissions(root, Path(folder), submissions)
            started = time.monotonic()
            _run_until(math.inf, suite, box, paths, Path(folder, "undisturbed"))
            whole = time.monotonic() - started
            for number in range(1, batches + 1):
                out = Path(folder, f"results-{number}")
                kills, kept = 0, {}
                while not _run_until(moments.uniform(0.0, whole), suite, box, paths, out):
                    kills += 1
                    before, kept = kept, _gradings(out)
                    sound &= before.items() <= kept.items()
                final = _gradings(out)
                reports = sum((out / path.name / "results.json").is_file() for path in paths)
                planned = {len(suite.planned)}
                good = len(final) == reports == submissions and kept.items() <= final.items()
                good &= {verdicts for _, verdicts in final.values()} == planned
                sound &= good
                click.echo(
                    f"batch {number}: {kills} kills, {len(final)} of {submissions} graded once, {reports} reports"
                    f"{'' if good else ' WRONG'}"
                )

    with_suite(root, use)
    sys.exit(not sound)


def _run_until(seconds: float, suite: Suite, box: sandbox.Sandbox, paths: list[Path], out: Path) -> bool:
    """Grade in a process that is killed after `seconds`; whether it ended by itself before."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = len(grade(suite, box, paths, out, jobs=2).faults)
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, "the batch ended with an error"
            return True
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _gradings(out: Path) -> dict[str, tuple[str, int]]:
    """For each submission, when it was graded and how many verdicts it has; a second grading raises."""
    if not (out / "gradebook.sqlite").exists():
        return {}
    with sqlite3.connect(out / "gradebook.sqlite") as connection:
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return {}
        query = "SELECT submission, started, count(*) FROM grading JOIN verdict ON grading = id GROUP BY id"
        rows = connection.execute(query).fetchall()
    found = {submission: (started, verdicts) for submission, started, verdicts in rows}
    assert len(found) == len(rows), "a submission was graded twice"
    return found


if __name__ == "__main__":
    interruptions()

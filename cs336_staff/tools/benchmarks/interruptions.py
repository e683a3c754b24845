"""Batches killed with SIGKILL at random moments and resumed: is every submission graded once, and nothing lost?

    python -m cs336_staff.tools.benchmarks.interruptions --batches 50 --submissions 100

The tests of one problem are enough: what is interrupted is how verdicts are collected, recorded and reported, and the
less time the tests take, the more of the kills hit that.
"""

import json
import math
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading.batch import grade
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.tools.benchmarks.submissions import write_submissions

VERDICT = {True: "as if undisturbed", False: "WRONG"}
PROBLEM = "softmax"

# When a submission was graded, and the outcome of each test.
Graded = dict[str, tuple[str, tuple[str, ...]]]


@click.command()
@click.option("--batches", default=5, show_default=True)
@click.option("--submissions", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the moments of the kills.")
def interruptions(batches: int, submissions: int, seed: int) -> None:
    """Print what became of each batch; the exit status is 1 if a verdict was lost, doubled or changed."""
    root = find_root(Path.cwd())
    moments = random.Random(seed)  # noqa: S311 (no secret)
    sound = True
    whole = load_graded_suite(root)
    tests = [test for test in whole.suite.tests if test.problem == PROBLEM]
    suite = replace(whole, suite=replace(whole.suite, tests=tests))
    with sandbox.start() as box, tempfile.TemporaryDirectory() as folder:
        paths = write_submissions(root, Path(folder), submissions)
        started = time.monotonic()
        _run_until(math.inf, suite, box, paths, Path(folder, "undisturbed"))
        seconds = time.monotonic() - started
        right = _outcomes(_gradings(Path(folder, "undisturbed")))
        for number in range(1, batches + 1):
            out = Path(folder, f"results-{number}")
            kills, kept = 0, {}
            good = True
            while not _run_until(moments.uniform(0.0, seconds / 2), suite, box, paths, out):
                kills += 1
                before, kept = kept, _gradings(out)
                good &= before.items() <= kept.items()
            final = _gradings(out)
            good &= kept.items() <= final.items() and _outcomes(final) == right == _reported(out, paths)
            sound &= good
            click.echo(f"batch {number}: {kills} kills, {len(final)} of {submissions} graded once: {VERDICT[good]}")
    sys.exit(not sound)


def _run_until(seconds: float, suite: GradedSuite, box: sandbox.Sandbox, paths: list[Path], out: Path) -> bool:
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


def _gradings(out: Path) -> Graded:
    """The gradebook's record of each submission; two gradings of one raise."""
    if not (out / "gradebook.sqlite").exists():
        return {}
    with closing(sqlite3.connect(out / "gradebook.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return {}
        (count,) = connection.execute("SELECT count(*) FROM grading").fetchone()
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        found = {each.submission: each for each in gradebook.latest()}
    assert len(found) == count, "a submission was graded twice"
    return {
        name: (each.started.isoformat(), tuple(result.outcome for result in each.results))
        for name, each in found.items()
    }


def _outcomes(gradings: Graded) -> dict[str, tuple[str, ...]]:
    return {name: outcomes for name, (_, outcomes) in gradings.items()}


def _reported(out: Path, paths: list[Path]) -> dict[str, tuple[str, ...]]:
    """The outcomes that the reports have."""
    reports = {path.name: json.loads((out / path.name / "results.json").read_text()) for path in paths}
    return {
        name: tuple(outcome for t in report["tests"] for outcome in t["extra_data"]["outcomes"].values())
        for name, report in reports.items()
    }


if __name__ == "__main__":
    interruptions()

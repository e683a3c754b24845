"""Submissions a minute: this grader, against one fresh pytest process for each submission on the public suite.

    python -m cs336_staff.tools.benchmarks.grading --submissions 100
    python -m cs336_staff.tools.benchmarks.grading --growth

Both take turns in one run, on the same submissions and with as many processes at a time. With `--growth`: time for each
submission and memory of the trusted side, from small classes to large ones.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading.batch import grade
from cs336_staff.grading.course import Course
from cs336_staff.grading.exports import grades, write_grades
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox.confinement import start
from cs336_staff.tools.benchmarks.submissions import write_submissions

ROUNDS = 3
SIZES = (10, 100, 1000)


@click.command()
@click.option("--submissions", default=60, show_default=True, help="Graded by this grader, over all rounds.")
@click.option("--fresh", default=12, show_default=True, help="Of these, also graded by fresh processes.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--growth", is_flag=True, help="Instead, grade classes of 10, 100 and 1,000.")
def grading(submissions: int, fresh: int, jobs: int, growth: bool) -> None:
    """Print submissions a minute and checks for both, and the memory of the trusted side."""
    root = find_root(Path.cwd())
    suite = load_graded_suite(root)
    if growth:
        _grow(suite, root, jobs)
        return
    with tempfile.TemporaryDirectory() as folder, start() as sandbox:
        paths = write_submissions(root, Path(folder, "submissions"), submissions)
        for path in paths[:fresh]:
            _lay_out(root, path)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # only the first import compiles, as on a student's machine
        _fresh_process(paths[0])
        here, there, resident = [], [], []
        for turn in range(ROUNDS):
            mine = paths[turn::ROUNDS]
            started = time.perf_counter()
            grade(suite, sandbox, mine, Path(folder, f"results-{turn}"), jobs=jobs)
            here.append((time.perf_counter() - started) / len(mine))
            resident.append(_resident_mib())
            theirs = paths[:fresh][turn::ROUNDS]
            started = time.perf_counter()
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(_fresh_process, theirs))
            there.append((time.perf_counter() - started) / len(theirs))
    tests = suite.suite.tests
    _say("this grader", here, sum(len(test.cases()) or 1 for test in tests))
    _say("fresh pytest processes", there, sum(not test.hidden for test in tests))
    ratios = [slow / quick for slow, quick in zip(there, here, strict=True)]
    click.echo(f"ratio {statistics.median(ratios):.1f} (rounds: {', '.join(f'{x:.1f}' for x in ratios)})")
    click.echo(f"memory of the trusted side after each round: {', '.join(f'{x:.0f}' for x in resident)} MiB")


def _grow(suite: GradedSuite, root: Path, jobs: int) -> None:
    with start() as sandbox:
        for count in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                paths = write_submissions(root, Path(folder, "submissions"), count)
                started = time.perf_counter()
                done = grade(suite, sandbox, paths, Path(folder, "results"), jobs=jobs)
                with Gradebook(Path(folder, "results", "gradebook.sqlite")) as gradebook:
                    write_grades(Path(folder, "grades.csv"), grades(gradebook, Course()), list(suite.problems))
                seconds = time.perf_counter() - started
            assert (done.done, done.faults) == (count, [])
            each = 1000 * seconds / count
            click.echo(f"{count:5} submissions: {each:.0f} ms each, trusted side {_resident_mib():.0f} MiB")


def _lay_out(root: Path, submission: Path) -> None:
    """Put the public suite beside a submission, as its student has it."""
    for folder in ("tests", "fixtures", "cs336_kit"):
        shutil.copytree(root / folder, submission / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "assignment.toml", "README.md"):
        shutil.copyfile(root / file, submission / file)


def _fresh_process(submission: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--quiet", "tests"]
    finished = subprocess.run(command, cwd=submission, capture_output=True, text=True, check=False)
    if finished.returncode > 1:  # 1: some tests failed
        raise click.ClickException(finished.stdout + finished.stderr)


def _say(name: str, seconds: list[float], checks: int) -> None:
    click.echo(f"{name}: {60 / statistics.median(seconds):.0f} submissions a minute, {checks} checks each")


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    grading()

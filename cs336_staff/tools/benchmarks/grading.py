"""Submissions a minute: this grader, against one fresh pytest process for each submission on the public suite.

    python -m cs336_staff.tools.benchmarks.grading --submissions 100
    python -m cs336_staff.tools.benchmarks.grading --growth
    python -m cs336_staff.tools.benchmarks.grading --growth --cluster scheduler.json --size 100 --size 1000
    python -m cs336_staff.tools.benchmarks.grading --growth --command-alone --size 1000 --size 10000

Both take turns in one run, on the same submissions and with as many processes at a time. With `--growth`: time and
memory of the command at several places in one large class, here or on a cluster with as many threads, and the line
that fits the times best. With `--command-alone` five submissions are graded, and each of the class gets one of these
five records at once: what is left is what the command does itself, which alone could grow with the class.
"""

import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading.batch import Progress, grade, grade_by
from cs336_staff.grading.course import Course
from cs336_staff.grading.exports import grades, write_grades
from cs336_staff.grading.forks import graders_here, identity, layer_of
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.host import Graders, Record
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox.confinement import Sandbox, start
from cs336_staff.sandbox.submission import Submission, take_in
from cs336_staff.tools.benchmarks.submissions import MISTAKES, write_submissions

ROUNDS = 3
SIZES = (10, 100, 1000)


@click.command()
@click.option("--submissions", default=60, show_default=True, help="Graded by this grader, over all rounds.")
@click.option("--fresh", default=12, show_default=True, help="Of these, also graded by fresh processes.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--growth", is_flag=True, help="Instead, grade one class, the largest of these sizes.")
@click.option("--size", "sizes", multiple=True, default=SIZES, show_default=True, type=click.IntRange(1))
@click.option("--cluster", help="Where to grade the class, if not here.")
@click.option("--command-alone", is_flag=True, help="Grade five of the class; the others get their records.")
def grading(
    submissions: int,
    fresh: int,
    jobs: int,
    growth: bool,
    sizes: tuple[int, ...],
    cluster: str | None,
    command_alone: bool,
) -> None:
    """Print submissions a minute and checks for both, and the memory of the trusted side."""
    root = find_root(Path.cwd())
    suite = load_graded_suite(root)
    if growth:
        _grow(suite, root, jobs, sizes, cluster, command_alone)
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


def _grow(
    suite: GradedSuite, root: Path, jobs: int, sizes: tuple[int, ...], cluster: str | None, command_alone: bool
) -> None:
    times: dict[int, float] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        start() as sandbox,
        _graders(suite, sandbox, jobs, cluster) as graders,
    ):
        paths = write_submissions(root, Path(folder, "submissions"), max(sizes))
        if command_alone:
            graders = _that_repeat([graders.submit(take_in(path)).result() for path in paths[: len(MISTAKES)]], jobs)
        started = time.perf_counter()

        def show(progress: Progress) -> None:
            for size in sizes:
                if size not in times and progress.done >= size:
                    times[size] = time.perf_counter() - started
                    each = 1000 * times[size] / size
                    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                    memory = f"the command has {_resident_mib():.0f} MiB and never had more than {peak:.0f}"
                    click.echo(f"{size:5} submissions: {each:.0f} ms each; {memory}")

        done = grade_by(graders, suite, paths, Path(folder, "results"), show=show)
        assert (done.done, done.faults) == (max(sizes), [])
        started = time.perf_counter()
        with Gradebook(Path(folder, "results", "gradebook.sqlite")) as gradebook:
            write_grades(Path(folder, "grades.csv"), grades(gradebook, Course()), list(suite.problems))
        click.echo(f"grades.csv: {time.perf_counter() - started:.1f} s")
    if len(times) > 1:
        slope, intercept = statistics.linear_regression(list(times), list(times.values()))
        click.echo(f"{intercept:.1f} s, and {1000 * slope:.0f} ms for each submission")


def _that_repeat(records: Sequence[Record], capacity: int) -> Graders:
    """Graders that give each submission the next of these records, at once."""
    turn = itertools.cycle(records)

    def submit(_: Submission) -> Future[Record]:
        future: Future[Record] = Future()
        future.set_result(next(turn))
        return future

    return Graders(submit, lambda: capacity)


@contextmanager
def _graders(suite: GradedSuite, sandbox: Sandbox, jobs: int, cluster: str | None) -> Iterator[Graders]:
    if cluster is None:
        with graders_here(suite, sandbox, suite.limits, jobs) as graders:
            yield graders
        return
    from cs336_staff.grading.cluster import AHEAD, Cluster, Needs, connect

    with connect(cluster) as client:
        graders = Cluster(client, Needs(identity(suite), layer_of(sandbox)), click.echo).graders
        while graders.capacity() - AHEAD < jobs:  # until the hosts have loaded the suite
            time.sleep(0.1)
        yield graders


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

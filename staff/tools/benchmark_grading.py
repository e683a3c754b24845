"""Submissions a minute: this grader, against one fresh pytest process for each submission on the public suite.

    python -m staff.tools.benchmark_grading --submissions 100

Both take turns in one run, on the same submissions and with as many processes at a time.
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

from staff.tools.student import COMPILED, ROOT, write_submission
from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.suite import load_graded_suite
from whichline_grader.sandbox.confinement import start

ROUNDS = 3
# What every second one adds to the solved adapters; the others add nothing.
MISTAKES = (
    "def run_softmax(in_features, dim):\n    return in_features.exp() / in_features.exp().sum(0, keepdim=True)",
    "def run_linear(d_in, d_out, weights, in_features):\n    return in_features @ weights",
    "right = run_scaled_dot_product_attention\n"
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    return right(Q * 2, K, V, mask)",
    "def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):\n    return in_query_or_key",
)


@click.command()
@click.option("--submissions", default=60, show_default=True, help="Graded by this grader, over all rounds.")
@click.option("--fresh", default=12, show_default=True, help="Of these, also graded by fresh processes.")
@click.option("--jobs", default=2, show_default=True)
def benchmark(submissions: int, fresh: int, jobs: int) -> None:
    """Print submissions a minute and checks for both."""
    suite = load_graded_suite(ROOT)
    with tempfile.TemporaryDirectory() as folder, start(diagnosing=True) as sandbox:
        paths = write_submissions(Path(folder, "submissions"), submissions)
        for path in paths[:fresh]:
            _lay_out(path)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # only the first import compiles, as on a student's machine
        _fresh_process(paths[0])
        here, there = [], []
        for turn in range(ROUNDS):
            mine = paths[turn::ROUNDS]
            started = time.perf_counter()
            grade(suite, sandbox, mine, Path(folder, f"results-{turn}"), How(jobs))
            here.append((time.perf_counter() - started) / len(mine))
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


def write_submissions(folder: Path, count: int) -> list[Path]:
    """`count` submissions, right and wrong ones in turn, each a folder of its own with a content of its own."""
    additions = [f"{MISTAKES[i // 2 % len(MISTAKES)] if i % 2 else ''}\n# {i}" for i in range(count)]
    return [write_submission(folder / f"submission-{i:04}", addition) for i, addition in enumerate(additions)]


def _lay_out(submission: Path) -> None:
    """Put the public suite beside a submission, as its student has it."""
    for folder in ("tests", "fixtures"):
        shutil.copytree(ROOT / folder, submission / folder, ignore=COMPILED)
    for file in ("pyproject.toml", "assignment.toml", "README.md"):
        shutil.copyfile(ROOT / file, submission / file)


def _fresh_process(submission: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--quiet", "tests"]
    finished = subprocess.run(command, cwd=submission, capture_output=True, text=True, check=False)
    if finished.returncode > 1:  # 1: some tests failed
        raise click.ClickException(finished.stdout + finished.stderr)


def _say(name: str, seconds: list[float], checks: int) -> None:
    click.echo(f"{name}: {60 / statistics.median(seconds):.0f} submissions a minute, {checks} checks each")


if __name__ == "__main__":
    benchmark()

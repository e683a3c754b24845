"""Submissions a minute.

python -m staff.tools.benchmark_grading --submissions 100
"""

import tempfile
import time
from pathlib import Path

import click

from staff.tools.student import ROOT, write_submission
from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.suite import load_graded_suite
from whichline_grader.sandbox.confinement import start

# What every second one adds to the solved adapters; the others add nothing.
MISTAKES = (
    "def run_softmax(in_features, dim):\n    return in_features.exp() / in_features.exp().sum(0, keepdim=True)",
    "def run_linear(d_in, d_out, weights, in_features):\n    return in_features @ weights",
    "right = run_scaled_dot_product_attention\n"
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    return right(Q * 2, K, V, mask)",
    "def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):\n    return in_query_or_key",
)


@click.command()
@click.option("--submissions", default=60, show_default=True)
@click.option("--jobs", default=2, show_default=True)
def benchmark(submissions: int, jobs: int) -> None:
    """Print submissions a minute, and the checks of each."""
    suite = load_graded_suite(ROOT)
    with tempfile.TemporaryDirectory() as folder, start(diagnosing=True) as sandbox:
        paths = write_submissions(Path(folder, "submissions"), submissions)
        started = time.perf_counter()
        grade(suite, sandbox, paths, Path(folder, "results"), How(jobs))
        seconds = time.perf_counter() - started
    checks = sum(len(test.cases()) or 1 for test in suite.suite.tests)
    click.echo(f"{60 * submissions / seconds:.0f} submissions a minute, {checks} checks each")


def write_submissions(folder: Path, count: int) -> list[Path]:
    """`count` submissions, right and wrong ones in turn, each a folder of its own with a content of its own."""
    additions = [f"{MISTAKES[i // 2 % len(MISTAKES)] if i % 2 else ''}\n# {i}" for i in range(count)]
    return [write_submission(folder / f"submission-{i:04}", addition) for i, addition in enumerate(additions)]


if __name__ == "__main__":
    benchmark()

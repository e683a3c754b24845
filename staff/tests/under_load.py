"""Showing that no verdict depends on the load: busy processes, and verdicts that can be compared."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.feedback import feedback
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.report import Report
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox


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


@contextmanager
def crowded() -> Iterator[None]:
    """Let this process, and those that it starts, share one processor with four busy ones."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with busy(4):
            yield
    finally:
        os.sched_setaffinity(0, before)


def verdicts(suite: GradedSuite, sandbox: Sandbox, paths: Sequence[Path], jobs: int = 2) -> dict[str, str]:
    """Every result and the feedback of each submission, by name, without how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        done = grade(suite, sandbox, paths, out, How(jobs))
        assert not done.faults
        with Gradebook(out / "gradebook.sqlite") as gradebook:
            same = [without_measures(grading) for grading in gradebook.latest()]
        return {each.submission: f"{each}\n{feedback(Report(each, suite.problems))}" for each in same}


def without_measures(grading: Grading) -> Grading:
    """The same without time."""
    results = [replace(result, seconds=0) for result in grading.results]
    return replace(grading, results=results, seconds=0, started=datetime.fromtimestamp(0, UTC))

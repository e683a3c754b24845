"""Batches that are killed at random moments lose nothing and grade nothing twice."""

import json
import random
import sqlite3
import time
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from staff.tests.attacks.grade import only
from staff.tests.sandbox.conftest import start
from staff.tools.benchmark_grading import write_submissions
from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.suite import GradedSuite

SUBMISSIONS, BATCHES = 12, 3

# When a submission was graded, and the outcome of each test.
Graded = dict[str, tuple[str, tuple[str, ...]]]


@pytest.mark.slow
@pytest.mark.nightly
def test_killed_batches_go_on_where_they_were(tmp_path: Path, graded_suite: GradedSuite) -> None:
    """The less time the tests take, the more of the kills hit what records and reports: one problem is enough."""
    suite = only(graded_suite, {test.name for test in graded_suite.suite.tests if test.problem == "softmax"})
    paths = write_submissions(tmp_path / "submissions", SUBMISSIONS)
    moments, kills = random.Random(0), 0  # noqa: S311 (no secret)
    with start("bubblewrap") as sandbox:
        run = partial(_grade_for, target=partial(grade, suite, sandbox, paths, how=How(jobs=2)))
        started = time.monotonic()
        assert run(None, tmp_path / "undisturbed")
        seconds = time.monotonic() - started
        right = _outcomes(read_gradings(tmp_path / "undisturbed"))
        assert len(right) == SUBMISSIONS
        for number in range(BATCHES):
            out, kept = tmp_path / f"killed-{number}", Graded()
            while not run(moments.uniform(0.0, seconds / 2), out):
                kills += 1
                before, kept = kept, read_gradings(out)
                assert before.items() <= kept.items()
            final = read_gradings(out)
            assert kept.items() <= final.items()
            assert _outcomes(final) == right == reported(out, paths)
    assert kills > BATCHES


def _grade_for(seconds: float | None, out: Path, target: partial) -> bool:
    """Grade in a process that is killed after that time; tell whether it ended by itself before."""
    process = get_context("fork").Process(target=target, args=(out,))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return False
    assert process.exitcode == 0
    return True


def read_gradings(out: Path) -> Graded:
    """The gradebook's record of each submission, which was graded once."""
    if not (out / "gradebook.sqlite").exists():
        return {}
    with closing(sqlite3.connect(out / "gradebook.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return {}
        (count,) = connection.execute("SELECT count(*) FROM attempt").fetchone()
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        found = {each.submission: each for each in gradebook.latest()}
    assert len(found) == count
    return {
        name: (each.started.isoformat(), tuple(result.outcome for result in each.results))
        for name, each in found.items()
    }


def _outcomes(gradings: Graded) -> dict[str, tuple[str, ...]]:
    return {name: outcomes for name, (_, outcomes) in gradings.items()}


def reported(out: Path, paths: list[Path]) -> dict[str, tuple[str, ...]]:
    """The outcomes that the reports have."""
    reports = {path.name: json.loads((out / path.name / "results.json").read_text()) for path in paths}
    return {
        name: tuple(outcome for t in report["tests"] for outcome in t["extra_data"]["outcomes"].values())
        for name, report in reports.items()
    }

"""Every attack, graded in each layer and by a plain run; each run once for all tests."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.grade import NOT_HERE
from staff.tests.attacks.plain import Outcome
from staff.tests.under_load import busy
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Grading

BUSY = "beside busy processes"
Run = tuple[subprocess.Popen[str], Path]


def started(folder: Path, *arguments: str) -> Run:
    command = [sys.executable, "-m", f"staff.tests.attacks.{arguments[0]}", *arguments[1:], str(folder)]
    with (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr, text=True), folder


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """The processes of the runs and their folders, all at once: much of their time they wait for what hangs."""
    has_process = any("[process-" in item.name or "[process]" in item.name for item in request.session.items)
    runs = {
        command.split()[-1]: started(tmp_path_factory.mktemp("run"), *command.split())
        for command in ("plain", "grade bubblewrap", *["grade process"] * has_process)
    }
    yield runs
    for process, _ in runs.values():
        process.kill()
        process.wait()


def finished(run: Run) -> tuple[int, Path]:
    process, folder = run
    return process.wait(timeout=900), folder


@pytest.fixture(scope="session")
def plain(runs: dict[str, Run]) -> dict[str, Outcome]:
    """What became of each attack in a plain run."""
    status, folder = finished(runs["plain"])
    assert status == 0, (folder / "stderr").read_text()
    return json.loads((folder / "outcomes.json").read_text())


@pytest.fixture(
    scope="session",
    params=["bubblewrap", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("process", BUSY))],
)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of one layer, or of bubblewrap beside eight busy processes."""
    if request.param == BUSY:
        with busy(8):
            status, folder = finished(started(tmp_path_factory.mktemp("busy"), "grade", "bubblewrap"))
    else:
        status, folder = finished(request.getfixturevalue("runs")[request.param])
    if status == NOT_HERE and os.environ.get("CI") != "true":
        pytest.skip(f"no {request.param} here: {(folder / 'stderr').read_text()}")
    assert status == 0, (folder / "stderr").read_text()
    return folder / "results"


@pytest.fixture(scope="session")
def gradings(results: Path) -> dict[str, Grading]:
    """What the gradebook says of each submission."""
    with Gradebook(results / "gradebook.sqlite") as gradebook:
        return {grading.submission: grading for grading in gradebook.latest()}

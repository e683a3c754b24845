"""Every attack, graded in each layer and by a plain run; each run once for all tests."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.tests.attacks.attack import ROOT
from cs336_staff.tests.attacks.grade import NOT_HERE
from cs336_staff.tests.attacks.plain import Outcome

Run = tuple[subprocess.Popen[str], Path]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """The processes of the three runs and their folders, all at once: much of their time they wait for what hangs."""
    runs: dict[str, Run] = {}
    for name, arguments in {
        "plain": ["plain"],
        "bubblewrap": ["grade", "bubblewrap"],
        "process": ["grade", "process"],
    }.items():
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-m", f"cs336_staff.tests.attacks.{arguments[0]}", *arguments[1:], str(folder)]
        with (folder / "stderr").open("w") as stderr:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
        runs[name] = process, folder
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


@pytest.fixture(scope="session", params=["bubblewrap", "process"])
def results(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Path:
    """The folder of the results of one layer."""
    status, folder = finished(runs[request.param])
    if status == NOT_HERE and os.environ.get("CI") != "true":
        pytest.skip(f"no {request.param} here: {(folder / 'stderr').read_text()}")
    assert status == 0, (folder / "stderr").read_text()
    return folder / "results"


@pytest.fixture(scope="session")
def gradings(results: Path) -> dict[str, Grading]:
    """What the gradebook says of each submission."""
    with Gradebook(results / "gradebook.sqlite") as gradebook:
        return {grading.submission: grading for grading in gradebook.latest()}

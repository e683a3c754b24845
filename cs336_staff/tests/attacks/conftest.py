"""Every attack, graded in each layer and by a plain run; each batch once for all tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cs336_staff.gradebook import Gradebook, Grading
from cs336_staff.tests.attacks.attack import ROOT
from cs336_staff.tests.attacks.grade import NOT_HERE
from cs336_staff.tests.attacks.plain import Outcome


def run_module(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"cs336_staff.tests.attacks.{name}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of each attack in a plain run."""
    folder = tmp_path_factory.mktemp("plain")
    finished = run_module("plain", folder)
    assert finished.returncode == 0, finished.stderr
    return json.loads((folder / "outcomes.json").read_text())


@pytest.fixture(scope="session", params=["bubblewrap", "process"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of one layer."""
    folder = tmp_path_factory.mktemp(request.param)
    finished = run_module("grade", request.param, folder)
    if finished.returncode == NOT_HERE and os.environ.get("CI") != "true":
        pytest.skip(f"no {request.param} here: {finished.stderr}")
    assert finished.returncode == 0, finished.stderr
    return folder / "results"


@pytest.fixture(scope="session")
def gradings(results: Path) -> dict[str, Grading]:
    """What the gradebook says of each submission."""
    with Gradebook(results / "gradebook.sqlite") as gradebook:
        return {grading.submission: grading for grading in gradebook.latest()}

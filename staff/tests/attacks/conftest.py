"""The attacks that were selected, graded in each layer and by a plain run: one run for all tests."""

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.attack import Attack
from staff.tests.attacks.plain import Outcome
from staff.tests.under_load import busy
from staff.tools.forked import run_forked
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Grading

BUSY = "beside busy processes"
Run = tuple[subprocess.CompletedProcess[bytes], Path]


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """`run("plain")` or `run("grade", LAYERS)`: how it ended, and its folder. It runs once."""
    cases = filter(None, (getattr(item, "callspec", None) for item in request.session.items))
    attacks = (case.params.get("attack") for case in cases)
    selected = sorted({attack.id for attack in attacks if isinstance(attack, Attack)})

    @cache
    def run(*what: str) -> Run:
        folder = tmp_path_factory.mktemp("run")
        command = (f"staff.tests.attacks.{what[0]}", *what[1:], str(folder), *selected)
        return run_forked(command, ROOT, os.environ), folder

    return run


@pytest.fixture(scope="session")
def plain(run: Callable[..., Run]) -> dict[str, Outcome]:
    """What became of each attack in a plain run."""
    finished, folder = run("plain")
    assert finished.returncode == 0, finished.stderr
    return json.loads((folder / "outcomes.json").read_text())


@pytest.fixture(scope="session", params=["bubblewrap", "process", pytest.param(BUSY, marks=pytest.mark.nightly)])
def results(request: pytest.FixtureRequest, run: Callable[..., Run]) -> Path:
    """The folder of the results of one layer, or of bubblewrap beside two busy processes for each processor."""
    layer = "bubblewrap" if request.param == BUSY else request.param
    if request.param == BUSY:
        with busy(2 * (os.cpu_count() or 1)):
            finished, folder = run("grade", layer)
    else:
        finished, folder = run("grade", "bubblewrap process")  # one after the other, by one suite
    assert finished.returncode == 0, finished.stderr
    if not (folder / layer).exists() and os.environ.get("CI") != "true":
        pytest.skip(finished.stderr.decode())
    return folder / layer


@pytest.fixture(scope="session")
def gradings(results: Path) -> dict[str, Grading]:
    """What the gradebook says of each submission."""
    with Gradebook(results / "gradebook.sqlite") as gradebook:
        return {grading.submission: grading for grading in gradebook.latest()}

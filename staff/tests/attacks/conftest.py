"""The attacks that were selected, graded in each layer and by a plain run; each run once for all tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.attack import Attack
from staff.tests.attacks.grade import NOT_HERE
from staff.tests.attacks.plain import Outcome
from staff.tests.under_load import busy
from staff.tools.forked import begin_forked, wait_for
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Grading

BUSY = "beside busy processes"
Run = tuple[int, Path]


@pytest.fixture(scope="session")
def begin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """`begin("plain")` or `begin("grade", LAYER)`: the id of the process of a run, and its folder."""
    cases = filter(None, (getattr(item, "callspec", None) for item in request.session.items))
    attacks = (case.params.get("attack") for case in cases)
    selected = sorted({attack.id for attack in attacks if isinstance(attack, Attack)})

    def begin(*what: str) -> Run:
        folder = tmp_path_factory.mktemp("run")
        command = (f"staff.tests.attacks.{what[0]}", *what[1:], str(folder), *selected)
        (folder / "stderr").touch()
        return begin_forked(command, ROOT, os.environ, [os.devnull, os.devnull, str(folder / "stderr")]), folder

    return begin


@pytest.fixture(scope="session")
def ended(begin: Callable[..., Run]) -> dict[str, tuple[int, Path]]:
    """Status and folder of all of them, at once: much of their time they wait for what hangs."""
    commands = (("plain",), ("grade", "bubblewrap"), ("grade", "process"))
    return {command: finished(run) for command, run in [(each[-1], begin(*each)) for each in commands]}


def finished(run: Run) -> tuple[int, Path]:
    pid, folder = run
    return wait_for(pid), folder


@pytest.fixture(scope="session")
def plain(ended: dict[str, tuple[int, Path]]) -> dict[str, Outcome]:
    """What became of each attack in a plain run."""
    status, folder = ended["plain"]
    assert status == 0, (folder / "stderr").read_text()
    return json.loads((folder / "outcomes.json").read_text())


@pytest.fixture(
    scope="session",
    params=["bubblewrap", "process", pytest.param(BUSY, marks=pytest.mark.nightly)],
)
def results(request: pytest.FixtureRequest, begin: Callable[..., Run]) -> Path:
    """The folder of the results of one layer, or of bubblewrap beside two busy processes for each processor."""
    if request.param == BUSY:
        with busy(2 * (os.cpu_count() or 1)):
            status, folder = finished(begin("grade", "bubblewrap"))
    else:
        status, folder = request.getfixturevalue("ended")[request.param]
    if status == NOT_HERE and os.environ.get("CI") != "true":
        pytest.skip(f"no {request.param} here: {(folder / 'stderr').read_text()}")
    assert status == 0, (folder / "stderr").read_text()
    return folder / "results"


@pytest.fixture(scope="session")
def gradings(results: Path) -> dict[str, Grading]:
    """What the gradebook says of each submission."""
    with Gradebook(results / "gradebook.sqlite") as gradebook:
        return {grading.submission: grading for grading in gradebook.latest()}

"""What `cs336 staff verify` prints: each stage and how far it is, the first error at once, all of them at the end."""

import io
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from staff.tests import ROOT
from whichline.engine.suite import SuiteError
from whichline_grader.cli import staff
from whichline_grader.release import verify
from whichline_grader.release.stages import Stage, Stages


def odd(stage: Stage) -> str:
    stage.check(lambda number: [f"{number} is odd"] * (number % 2), range(8))
    return "done"


def breaks(stage: Stage) -> str:
    def write(number: int) -> int:
        raise ValueError("no disk")

    assert not list(stage.map(write, range(8)))
    return "never"


def run(terminal: bool) -> tuple[Stages, str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=80)
    stages = Stages(console)
    assert stages.run("Numbers are even", odd) == "done"
    assert stages.run("The disk is there", breaks) is None
    assert stages.run("The sky is blue", lambda stage: "blue") == "blue"
    return stages, re.sub(r"\d+ s$", "0 s", console.file.getvalue(), flags=re.MULTILINE)  # type: ignore[attr-defined]


def test_without_a_terminal_a_stage_is_two_lines_and_the_first_error_one_more():
    stages, printed = run(terminal=False)
    assert printed.splitlines() == [
        "1. Numbers are even",
        "   first error: 1 is odd",
        "   8 of 8, 4 errors, 0 s",
        "2. The disk is there",
        "   0 of 8, 1 error, 0 s",
        "3. The sky is blue",
        "   no errors, 0 s",
    ]
    assert stages.errors == [*(f"{n} is odd" for n in (1, 3, 5, 7)), "stage 2 ended early: ValueError: no disk"]


def test_on_a_terminal_there_is_a_bar():
    _, printed = run(terminal=True)
    assert "━" in printed
    for line in ("1. Numbers are even", "   first error: 1 is odd", "   8 of 8, 4 errors, 0 s", "   no errors, 0 s"):
        assert re.search(rf"{line}\n", printed)


def test_an_error_stops_no_other_stage_and_the_last_lines_list_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)

    def load(root: object, problem: str | None) -> None:
        raise SuiteError("drawn from another secret")

    monkeypatch.setattr(verify, "both_suites", load)
    monkeypatch.setattr(verify, "stored_cases", lambda root: ())
    monkeypatch.setattr(verify, "verify_steps", lambda root, problems, stage: stage.error("told too much"))
    finished = CliRunner().invoke(staff, ["verify"])
    assert finished.exit_code == 1
    said = finished.output.splitlines()
    assert [line[:2] for line in said if line[1:2] == "."] == ["1.", "2."]
    assert said[1] == "   first error: stage 1 ended early: SuiteError: drawn from another secret"
    assert said[-3:] == [
        "Error: 2 errors in all:",
        "stage 1 ended early: SuiteError: drawn from another secret",
        "told too much",
    ]

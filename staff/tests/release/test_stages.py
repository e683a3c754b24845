"""What `cs336 staff verify` prints: each stage and how far it is, the first error at once, all of them at the end."""

import io
import re
from contextlib import nullcontext
from functools import partial
from unittest.mock import Mock

import pytest
from rich.console import Console

from staff.tests import ROOT
from staff.tests.attacks.grade import only
from staff.tests.grading.conftest import invoke
from whichline.engine.assignment import SuiteError
from whichline.engine.result import Check, Outcome, Result
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.release import verify
from whichline_grader.release.stages import Stage, Stages
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.submission import Submission


def odd(stage: Stage) -> str:
    stage.check(lambda number: [f"{number} is odd"] * (number % 2), range(8))
    return "done"


def breaks(stage: Stage) -> str:
    assert not list(stage.map(Mock(side_effect=ValueError("no disk")), range(8)))
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
    first = "1. Numbers are even\n   first error: 1 is odd\n   8 of 8, 4 errors, 0 s\n"
    assert printed == f"{first}2. The disk is there\n   0 of 8, 1 error, 0 s\n3. The sky is blue\n   no errors, 0 s\n"
    assert stages.errors == [*(f"{n} is odd" for n in (1, 3, 5, 7)), "stage 2 ended early: ValueError: no disk"]


def test_on_a_terminal_there_is_a_bar():
    _, printed = run(terminal=True)
    assert "━" in printed
    for line in ("1. Numbers are even", "   first error: 1 is odd", "   8 of 8, 4 errors, 0 s", "   no errors, 0 s"):
        assert re.search(rf"{line}\n", printed)


def test_an_error_stops_no_other_stage_and_the_last_lines_list_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(verify, "load_solved_suite", Mock(side_effect=SuiteError("drawn from another secret")))
    monkeypatch.setattr(verify, "stored_cases", lambda *_: ())
    monkeypatch.setattr(verify, "grade_solution", lambda *_: None)
    monkeypatch.setattr(verify, "verify_references", lambda root, problems, stage: stage.error("told too much"))
    monkeypatch.setattr(verify, "check_second_opinion", lambda root, problem: iter(()))
    monkeypatch.setattr(verify, "verify_handout", lambda root, stage: None)
    finished = invoke("verify")
    assert finished.exit_code == 1
    said = finished.output.splitlines()
    assert [line[:2] for line in said if line[1:2] == "."] == ["1.", "2.", "3.", "4.", "5."]
    ended = "stage 1 ended early: SuiteError: drawn from another secret"
    assert said[1] == f"   first error: {ended}"
    assert said[-3:] == ["Error: 2 errors in all:", ended, "told too much"]


@pytest.mark.slow
def test_losing_points_is_an_error(graded_suite: GradedSuite, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    wrong = b"import torch\ndef run_softmax(in_features, dim):\n    return torch.softmax(in_features, -1)\n"
    suite = only(graded_suite, {"test_softmax[2d-first-dim]", "test_softmax[3d-last-dim]"})
    monkeypatch.setattr(verify, "load_and_start", lambda root: nullcontext((suite, sandbox)))
    monkeypatch.setattr(verify, "take_in", lambda root: Submission("x", {"adapters.py": wrong}, "adapters"))
    stage = Stage()
    verify.grade_solution(ROOT, suite.problems, stage)
    verify.grade_solution(ROOT, {"rope"}, stage)
    use = "torch.softmax in adapters.py:3: return torch.softmax(in_features, -1)"
    fails = "the solution fails test_softmax[2d-first-dim]: the answer is wrong in 15 of 15 places"
    assert stage.errors == [fails, f"the solution of softmax uses what is forbidden: {use}"]


def test_many_tests_of_one_problem_that_fail_are_one_error():
    made = partial(Result, hidden=False, bonus=False, maximum=1.0, check=Check.ANSWER)
    wrong = [made(f"test_{n}", "rope", outcome=Outcome.FAILED, headline=f"wrong in {n} places") for n in (1, 2)]
    other = made("test_linear", "linear", outcome=Outcome.FAILED, headline="it is None")
    right = [made(f"test_{n}", id, outcome=Outcome.PASSED) for n, id in ((3, "rope"), (4, "linear"))]
    said = ["test_1: wrong in 1 places (2 of 3 tests of rope fail; is its reference right?)", "test_linear: it is None"]
    assert [*verify.describe_failed([*right, *wrong, other])] == said


def test_a_suite_that_cannot_be_graded_with_is_an_error_and_no_traceback(monkeypatch: pytest.MonkeyPatch):
    error = SuiteError("a right program fails test_softmax: it is wrong")
    monkeypatch.setattr(verify, "load_and_start", Mock(side_effect=error))
    stage = Stage()
    verify.grade_solution(ROOT, ["softmax"], stage)
    assert stage.errors == [str(error)]

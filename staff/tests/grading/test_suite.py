"""The suites that a class is graded with: the names of their tests, and the key for grading again."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from staff.tests.attacks.grade import only
from staff.tests.grading.conftest import invoke
from staff.tests.grading.test_grades import gradebook_with, graded
from staff.tests.sandbox.conftest import ROOT
from whichline.engine.assignment import SuiteError
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.grading import commands
from whichline_grader.grading.one_submission import find_tests, grade_one
from whichline_grader.grading.suite import ASKS, JUDGES, GradedSuite, hash_code, load_both_suites, load_graded_suite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.submission import Submission

DRAWS = """
import pytest, torch, adapters
def test_draws_many():
    batches = {tuple(adapters.run_softmax(torch.arange(9), dim=0).tolist()) for _ in range(20)}
    assert len(batches) > 10
    torch.manual_seed(len(batches))
    first = adapters.run_softmax(torch.randint(9, (9,)), dim=0)
    torch.manual_seed(len(batches))
    assert torch.equal(first, adapters.run_softmax(torch.randint(9, (9,)), dim=0))
"""
SHUFFLES = "import torch\ndef run_softmax(in_features, dim):\n    return in_features[torch.randperm(9)]\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("test_sofmax[1d]", r"is it test_softmax\[1d\] or "),
        ("test_softmax_sums_to_two", "is it test_softmax_sums_to_one or "),
        ("test_linear_of_any_shape[no-bath]", r"is it test_linear_of_any_shape\[no-batch\] or "),
        ("zzz", "results.json has the names"),
    ],
)
def test_of_a_wrong_name_the_nearest_are_told(name: str, hint: str) -> None:
    suite: Any = SimpleNamespace(suite=load_both_suites(ROOT))
    with pytest.raises(click.UsageError, match=f"no test is called {re.escape(name)}; {hint}"):
        find_tests(suite, name)


def test_a_student_whose_work_is_reproduced_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(root: Path, layer: str, name: str) -> None:
        raise click.ClickException(f"{name} of what was taken in")

    def reproduce(student: str) -> str:
        return invoke("reproduce", student, "test_softmax[1d]", "--out", tmp_path).output

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(commands, "load_and_start", load)
    path = tmp_path / "lovelaceada_1234_1_adapters.py"
    path.write_text("def run_softmax(x, dim):\n    return x\n")
    gradebook_with(tmp_path, replace(graded(path.stem, 1.0), path=str(path))).close()
    for student in (str(path), "lovelace", "1234"):
        assert reproduce(student) == "Error: test_softmax[1d] of what was taken in\n"
    assert reproduce("turing").startswith("Error: there is no file turing, and no student of that name: no student or")
    path.unlink()
    assert reproduce("ada") == f"Error: {path} is no longer there; put it back, or name the file where it is now\n"


def test_only_what_is_asked_for_is_rehearsed() -> None:
    expected = {test.name for test in load_both_suites(ROOT).tests if test.function == "test_softmax"}
    assert set(load_graded_suite(ROOT, "test_softmax").remote_calls) == expected


@pytest.mark.parametrize(
    ("edit", "is_same"),
    [
        (("def add(x):", "\n\ndef add(x):  # or not"), True),
        (('"""Add."""', '"""Add one."""'), True),
        (("x + 1", "x + 2"), False),
        (("x + 1", "x - 1"), False),
        (('"b"}', '"c"}'), False),
        (("def add(x)", "def add(x, /)"), False),
    ],
)
def test_a_submission_is_graded_again_when_code_has_changed(tmp_path, edit, is_same) -> None:
    """Comments and docstrings change no outcome."""
    source = 'def add(x):\n    """Add."""\n    return x + 1 if x in {"a", "b"} else (lambda: x)()\n'
    path = tmp_path / "code.py"
    path.write_text(source)
    before = hash_code([tmp_path])
    path.write_text(source.replace(*edit))
    assert (hash_code([tmp_path]) == before) == is_same


def load_with(folder: Path, source: str, name: str) -> GradedSuite:
    """Load one test of a suite that has one file more."""
    for path in ("adapters.py", "fixtures", "problems", "staff"):
        (folder / path).symlink_to(ROOT / path)
    stated = (ROOT / "assignment.toml").read_text()
    (folder / "assignment.toml").write_text(stated.replace("test_softmax = 5", f"test_softmax = 5\n{name} = 1"))
    shutil.copytree(ROOT / "tests", folder / "tests")
    (folder / "tests" / "test_0_odd.py").write_text(source)
    return load_graded_suite(folder, name)


@pytest.mark.slow
def test_random_draws_are_graded_as_at_home(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    program: dict[str, Any] = {}
    exec(SHUFFLES, program)  # noqa: S102
    monkeypatch.setitem(RIGHT, "run_softmax", program["run_softmax"])
    suite = only(load_with(tmp_path, DRAWS, "test_draws_many"), {"test_draws_many"})
    (result,), _, _ = grade_one(suite, sandbox, Submission("x", {"adapters.py": SHUFFLES.encode()}, "adapters"))
    assert result.passed, result.headline


WRONG_TESTS = {
    "test_fails": ("assert adapters.run_softmax(torch.ones(2), dim=0)[0] == 1", "a right program fails test_fails: "),
    "test_shape": (
        "adapters.run_softmax(torch.ones(2), dim=0, axis=0)",
        "a right program fails test_shape: TypeError: got an unexpected keyword argument 'axis'",
    ),
    "test_computes": (
        "x = adapters.run_softmax(torch.ones(2), 0)\n    adapters.run_softmax(2 * x, 0)",
        "test_computes makes other calls when it is run again: run_softmax is not called with what the call before it "
        "gave; it may call with what it has, what it draws, or what an earlier call gave, as it is",
    ),
}


@pytest.mark.parametrize("name", WRONG_TESTS)
def test_a_test_that_a_right_program_fails_is_told_before_anybody_is_graded(tmp_path: Path, name: str) -> None:
    body, said = WRONG_TESTS[name]
    with pytest.raises(SuiteError) as caught:
        load_with(tmp_path, f"import torch, adapters\ndef {name}():\n    {body}\n", name)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.nightly
def test_the_hash_of_code_is_the_same_in_every_process() -> None:
    code = "from whichline_grader.grading.suite import *; print(hash_code((*ASKS, *JUDGES)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    elsewhere = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert elsewhere.strip() == hash_code((*ASKS, *JUDGES))

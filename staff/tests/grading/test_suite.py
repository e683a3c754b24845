"""The suites that a class is graded with: the names of their tests, and the key for grading again."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from staff.tests.grading.test_grades import gradebook_with, graded
from staff.tests.sandbox.conftest import ROOT
from whichline_grader.cli import staff
from whichline_grader.grading import commands
from whichline_grader.grading.one_submission import find_tests
from whichline_grader.grading.suite import ASKS, JUDGES, hash_code, load_both_suites, load_graded_suite


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
        command = ["reproduce", student, "test_softmax[1d]", "--out", str(tmp_path)]
        return CliRunner().invoke(staff, command).output

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
    assert set(load_graded_suite(ROOT, "test_softmax").questions) == {
        test.name for test in load_both_suites(ROOT).tests if test.function == "test_softmax"
    }


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


@pytest.mark.slow
def test_the_hash_of_code_is_the_same_in_every_process() -> None:
    code = "from whichline_grader.grading.suite import *; print(hash_code((*ASKS, *JUDGES)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    elsewhere = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert elsewhere.strip() == hash_code((*ASKS, *JUDGES))

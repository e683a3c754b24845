"""The suites that a class is graded with: the names of their tests, and the key for grading again."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cs336_staff.cli import staff
from cs336_staff.grading import commands
from cs336_staff.grading.one_submission import reproduce_test
from cs336_staff.grading.suite import load_both_suites, load_graded_suite, without_words
from cs336_staff.tests.grading.test_grades import gradebook_with, graded
from cs336_staff.tests.sandbox.conftest import ROOT

SOURCE = '''
"""A module."""

def check(error, bound):
    """Fail if the error is too large."""
    # a comment
    if error > bound:
        raise ValueError(f"an error of {error}", "too large")
    return "a text that is returned"
'''


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
    nothing: Any = None
    suite: Any = SimpleNamespace(suite=load_both_suites(ROOT))
    with pytest.raises(click.UsageError, match=f"no test is called {re.escape(name)}; {hint}"):
        reproduce_test(suite, nothing, nothing, name)


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


def test_only_what_is_asked_for_is_foreseen() -> None:
    assert set(load_graded_suite(ROOT, "test_softmax").requests) == {
        test.name for test in load_both_suites(ROOT).tests if test.function == "test_softmax"
    }


@pytest.mark.parametrize(
    "words", ["A module.", "Fail if the error is too large.", "a comment", "an error of", "too large"]
)
def test_words_do_not_change_the_key(words: str) -> None:
    assert words in SOURCE
    assert without_words(SOURCE.replace(words, "x")) == without_words(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("error > bound", "error >= bound"), ("ValueError", "TypeError"), ("returned", "given"), ("{error}", "{bound}")],
)
def test_code_changes_the_key(old: str, new: str) -> None:
    assert without_words(SOURCE.replace(old, new)) != without_words(SOURCE)

"""`cs336 staff reproduce`: a wrong name is told before anything is started."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from cs336_staff.cli import staff
from cs336_staff.grading import commands
from cs336_staff.grading.names import ANY, cases_of_tests, check_name
from cs336_staff.grading.reproduce import reproduce_test
from cs336_staff.grading.suite import load_both_suites, load_graded_suite
from cs336_staff.tests.sandbox.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("test_sofmax[1d]", "is it test_softmax[1d] or "),
        ("Softmax: test_softmax[1e]", "is it test_softmax[1d] or "),
        ("test_softmax_sums_to_two", "is it test_softmax_sums_to_one or "),
        ("zzz", "results.json has the names"),
    ],
)
def test_a_wrong_name_is_told_at_once(monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delattr(commands, "ready")
    told = CliRunner().invoke(staff, ["reproduce", str(ROOT), name])
    assert told.exit_code == 2
    assert f"no test is called {name.rpartition(': ')[2]}; {hint}" in told.output


def test_the_names_in_the_files_are_those_of_the_suites() -> None:
    cases: dict[str, set[str]] = {}
    for test in load_both_suites(ROOT).tests:
        case = ANY if test.drawn else test.name.removeprefix(test.function).strip("[]")
        cases.setdefault(test.function, set()).update({case} if case else ())
    assert {function: set(found) for function, found in cases_of_tests(ROOT).items()} == cases


def test_a_wrong_name_of_drawn_cases_is_told_when_they_are_there() -> None:
    name = "test_linear_of_any_shape[no-bath]"
    check_name(ROOT, name)
    nothing: Any = None
    with pytest.raises(click.UsageError, match=r"is it test_linear_of_any_shape\[no-batch\] or "):
        reproduce_test(load_graded_suite(ROOT, name), nothing, nothing, name)


def test_only_what_is_asked_for_is_foreseen() -> None:
    assert set(load_graded_suite(ROOT, "test_softmax").requests) == {
        test.name for test in load_both_suites(ROOT).tests if test.function == "test_softmax"
    }

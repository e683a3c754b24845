"""The precision trial: a folder of wrong submissions becomes a confusion table."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.right_styles import CORRECT
from cs336_staff.tools.benchmarks.plain_suite import TESTS, failed_tests
from cs336_staff.tools.benchmarks.precision import judge, main

TRANSPOSED = '''"""The weight is multiplied from the wrong side."""

def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights
'''
NEW = '''"""Twice the right answer."""

def run_linear(d_in, d_out, weights, in_features):
    return 2 * in_features @ weights.T
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "transposed.py").write_text(TRANSPOSED)
    (tmp_path / "new.py").write_text(NEW)
    (tmp_path / "expected.toml").write_text('transposed = ["linear-transposed"]\nnew = []\n')
    return tmp_path


def test_the_table_counts_right_names_and_mistakes_that_have_none(folder):
    result = CliRunner().invoke(main, [str(folder)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[-3:] == [
        "2 submissions: 2 caught, 0 by the plain suite",
        "1 named: 1 right, 0 right among others, 0 wrong",
        "1 are in the catalogue, 0 of them not named",
    ]


def test_every_submission_is_expected_to_be_something(folder):
    (folder / "late.py").write_text(NEW)
    result = CliRunner().invoke(main, [str(folder)])
    assert "differ in late" in result.output


def test_expected_ids_are_in_the_catalogue(folder):
    (folder / "expected.toml").write_text('transposed = ["linear-upside-down"]\nnew = []\n')
    assert "linear-upside-down, which the catalogue does not have" in CliRunner().invoke(main, [str(folder)]).output


def test_a_submission_without_a_docstring_is_refused(folder):
    (folder / "new.py").write_text("def run_linear(*arguments): pass\n")
    assert "should have a docstring" in CliRunner().invoke(main, [str(folder)]).output


@pytest.mark.parametrize(
    ("expected", "named", "verdict"),
    [
        ({"a"}, {"a"}, "right"),
        ({"a", "b"}, {"a"}, "right"),
        ({"a"}, {"a", "b"}, "right among others"),
        ({"a"}, {"b"}, "wrong"),
        (set(), {"b"}, "wrong"),
        ({"a"}, set(), "not named"),
        (set(), set(), "rightly not named"),
    ],
)
def test_names_are_judged(expected, named, verdict):
    assert judge(expected, named) == verdict


@pytest.mark.parametrize("style", CORRECT)
def test_the_plain_suite_passes_right_programs(style):
    assert failed_tests(CORRECT[style]) == []


def test_the_plain_suite_fails_programs_that_are_wrong_on_its_inputs():
    adapters = {**CORRECT["einsum"], **CATALOGUE["attention-no-scale"].adapters, **CATALOGUE["softmax-log"].adapters}
    assert failed_tests(adapters) == list(TESTS)

"""`cs336 hint` says more with each step."""

import re

import pytest
from click.testing import CliRunner

from staff.tools.student import Student
from whichline.cli import main as cs336


@pytest.fixture
def hint(student: Student, monkeypatch: pytest.MonkeyPatch):
    """Run the command in the student's folder."""
    monkeypatch.chdir(student.folder / "cs336_basics")
    return lambda *arguments: CliRunner().invoke(cs336, ["hint", *arguments])


def test_the_first_step_is_a_question_and_the_last_points_to_the_handout(hint) -> None:
    first, last = hint("linear").output, hint("linear", "--step", "2").output
    assert first.startswith("Hints for linear, 1 of 2\n 1. The weight has shape (d_out, d_in).")
    assert " 2. " not in first
    assert first.endswith("\nuv run cs336 hint linear --step 2 says more\n")
    assert " 1. The weight" in last
    assert " 2. Read docs/assignment.md, section 4." in last
    assert "says more" not in last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *((("linear", "--step", step), f"linear has hints 1 to 2, not {step}") for step in ("0", "3", "-1")),
        (("lineal",), "no problem is called lineal: is it linear?"),
    ],
)
def test_a_step_or_a_problem_that_is_not_there(hint, arguments: tuple[str, ...], said: str) -> None:
    result = hint(*arguments)
    assert (result.exit_code, result.output) == (1, f"Error: {said}\n")


def test_a_problem_without_hints(hint, student: Student) -> None:
    path = student.folder / "assignment.toml"
    path.write_text(re.sub(r"hints = \[.*?\n\]\n", "", path.read_text(), flags=re.DOTALL))
    assert hint("linear").output == "Error: linear has no hints\n"


@pytest.mark.slow
def test_without_a_problem_it_helps_with_the_first_that_does_not_pass(student: Student) -> None:
    student.replace("cs336_basics/nn/linear.py", "return einsum(", "return -einsum(")
    assert student.run("whichline", "hint").stdout.splitlines()[0] == "Hints for linear, 1 of 2"

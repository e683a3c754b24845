"""`check` and `submit` say the same wherever the folder lies and however the shell is set up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from staff.tools.student import Student

pytestmark = pytest.mark.nightly

BARE = {"LANG": "C", "LC_ALL": "C", "HOME": None, "TMPDIR": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git submodule in a uv workspace, in a folder with an odd name, whose linear layer is wrong."""
    above = tmp_path_factory.mktemp("Übung 1")
    (above / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["*"]\n[tool.pytest.ini_options]\nx = 1\n')
    (above / "attention").mkdir()
    student = Student(above / "attention")
    student.replace("cs336_basics/nn/linear.py", "return einsum(", "return 2 * einsum(")
    (student.folder / ".git").write_text("gitdir: ../.git/modules/attention\n")
    return student.folder


def run(folder: Path, *arguments: str, **changes: str | None) -> str:
    """What a command prints in 80 columns, after these changes of the environment; None takes a variable away."""
    changed = os.environ | {"COLUMNS": "80"} | changes
    environment = {name: value for name, value in changed.items() if value is not None}
    command = [sys.executable, "-m", "whichline", *arguments]
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    assert finished.stderr == ""
    return finished.stdout


@pytest.fixture(scope="module")
def usual(folder: Path) -> str:
    return run(folder, "check", "linear")


def explained(output: str) -> str:
    """What is wrong, without spaces: how lines are wrapped depends on the terminal."""
    return "".join(output.partition("Next: ")[2].partition("uv run pytest")[0].split())


def test_the_usual(usual: str) -> None:
    assert "cs336_basics/nn/linear.py:" in usual
    assert "Expected the answer; found 2 times that value." in usual


@pytest.mark.parametrize(
    "changes",
    [
        {"VIRTUAL_ENV": "/opt/conda", "CONDA_PREFIX": "/opt/conda", "NO_COLOR": "1", "HOME": "/proc"},
        BARE,
    ],
    ids=["conda, no colours and a home that is read-only", "LANG=C, no home and no folder for temporary files"],
)
def test_the_same_is_said(folder: Path, usual: str, changes: dict[str, str | None]) -> None:
    assert run(folder, "check", "linear", **changes) == usual


@pytest.mark.parametrize("columns", ["20", "200"])
def test_the_same_is_said_in_other_lines(folder: Path, usual: str, columns: str) -> None:
    output = run(folder, "check", "linear", COLUMNS=columns)
    assert explained(output) == explained(usual) != ""
    assert max(map(len, output.splitlines())) <= int(columns)


def test_a_submission_without_home_and_folder_for_temporary_files(folder: Path) -> None:
    output = run(folder, "submit", **BARE)
    assert output.endswith(f"\n{folder / 'submission.zip'} is written: hand it in\n")

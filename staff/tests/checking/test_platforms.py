"""What Windows and macOS lack is not needed: forks, groups of processes, some modules, UTF-8 and line feeds."""

import subprocess
import sys
from pathlib import PureWindowsPath

import pytest

from staff.tools.student import Student
from whichline.engine.assignment import is_own_code, is_students

WITHOUT = """\
import os, sys
for name in dir(os):
    if name.startswith(("fork", "sched_", "pidfd_", "setsid", "setpgid", "getpgid", "killpg")):
        delattr(os, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp"))
"""


def run(student: Student, *command: str) -> str:
    """The output of a module, in a process that is no fork: Python reads these variables when it starts."""
    python = [sys.executable, "-m", *command]
    finished = subprocess.run(python, cwd=student.folder, capture_output=True, encoding="utf-8", check=False)
    assert finished.stderr == ""
    return finished.stdout


@pytest.fixture
def elsewhere(student: Student, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Student:
    """A student whose attention is wrong, on a machine that lacks what Linux has."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "sitecustomize.py").write_text(WITHOUT)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # a part of cp1252, and of every other one
    student.replace("cs336_basics/nn/functional.py", "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    for path in student.folder.rglob("*"):
        if path.suffix in (".py", ".toml"):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return student


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("pytest", "-k", "test_scaled_dot"), "Expected sqrtd_k; found d_k."),
        (("whichline", "check", "attention"), "Expected sqrtd_k; found d_k."),
        (("whichline", "submit"), "submission.zip is written: hand it in"),
        (("whichline", "hint", "attention"), "Hints for scaled_dot_product_attention, 1 of 3"),
        (("whichline", "debug", "--case", "attention/3d-causal"), "Expected sqrtd_k; found d_k."),
    ],
    ids=["pytest", "check", "submit", "hint", "debug"],
)
def test_everything_works_without_them(elsewhere: Student, command: tuple[str, ...], words: str) -> None:
    assert words in run(elsewhere, *command)


@pytest.mark.nightly
def test_files_are_read_as_utf_8_whatever_a_machine_prefers(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    student.replace("cs336_basics/nn/functional.py", "math.sqrt(Q.shape[-1])", "(café := Q.shape[-1])")
    assert "/ (café := Q.shape[-1])" in run(student, "whichline", "check", "attention")
    student.replace("assignment.toml", "What should every slice", "In a café, what should every slice")
    assert "In a café, what should every slice" in run(student, "whichline", "hint", "softmax")


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        *((path, True) for path in ("adapters.py", "cs336_basics/nn/rope.py", "cs336_basics/test_rope.py", "model.py")),
        *((path, True) for path in ("tests/adapters.py", "tests/common.py", "src/model.py", "mine/nn/rope.py")),
        *((path, False) for path in ("tests/test_1_softmax.py", "tests/conftest.py", "test_mine.py", "lab/plot.py")),
        *((path, False) for path in ("problems/softmax/reference.py", ".venv/lib/python3/site-packages/torch/nn.py")),
        *((path, False) for path in ("env/lib/python3/site-packages/numpy.py", ".ipynb_checkpoints/adapters.py")),
    ],
)
def test_code_that_did_not_come_with_the_course_is_the_students(path: str, is_own: bool) -> None:
    assert is_own_code(PureWindowsPath(path)) is is_own


def test_backslashes() -> None:
    assert is_students(PureWindowsPath("cs336_basics\\nn\\rope.py"))
    assert not is_students(PureWindowsPath("tests\\test_1_softmax.py"))

"""Ordinary habits of pytest, editors and students: what is told stays what it is, and no traceback is of ours."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from staff.tools.student import FUNCTIONAL, LINEAR, Student
from staff.tools.terminal import watching

pytestmark = pytest.mark.slow

TOLD = "Expected the answer; found 2 times that value."  # which is found in a fraction of a second
ONE = ("-k", "test_linear and 2d")

AT_THE_FIRST_FAILURE = """
import os
import signal
def pytest_runtest_logreport(report):
    if report.failed:
        {}
"""
# As pytest-randomly orders the tests and pytest-cov traces them.
PLUGINS = """
import random
import sys
def trace(*_):
    return trace
def pytest_collection_modifyitems(items):
    random.Random(0).shuffle(items)
    sys.settrace(trace)
"""
# What `| head` leaves when it has seen enough.
NOBODY_READS = "read, write = os.pipe(); os.close(read); os.dup2(write, 1)"
OWN = """
import pytest
from cs336_basics.nn.functional import scaled_dot_product_attention, softmax
@pytest.mark.parametrize("n", [1, 2])
def test_mine(n, tmp_path):
    assert n == 2, tmp_path
class TestMine:
    def test_softmax(self):
        assert softmax(None, 0)
def test_softmax():  # as one of the course's is called
    assert 3 == 4
"""


@pytest.fixture
def wrong(student: Student) -> Student:
    """A student whose linear layer gives twice what it should."""
    student.replace(LINEAR, "return einsum(", "return 2 * einsum(")
    return student


@pytest.mark.parametrize(
    ("stop", "how", "status"),
    [("signal.raise_signal(signal.SIGINT)", (), 2), (NOBODY_READS, ("-s",), 1)],  # without -s, pytest opens it again
    ids=["Ctrl-C", "head"],
)
def test_a_run_cut_short_ends_without_a_traceback(wrong: Student, stop: str, how: tuple[str, ...], status: int) -> None:
    (wrong.folder / "conftest.py").write_text(AT_THE_FIRST_FAILURE.format(stop))
    process = wrong.run("pytest", *ONE, *how)
    assert (process.returncode, process.stderr) == (status, "")
    assert (TOLD in process.stdout) == (status == 2)


def test_ctrl_c_ends_the_search_and_the_failures_are_told_all_the_same(wrong: Student) -> None:
    sought = "any('explain.py' in frame.filename for frame in __import__('traceback').extract_stack())"
    stop = f"if {sought}: __import__('signal').raise_signal(2)"
    wrong.replace(LINEAR, "        return 2", f"        {stop}\n        return 2")
    process = wrong.run("pytest", *ONE)
    assert process.returncode == 1
    assert process.stderr == "\nYou pressed Ctrl-C: the search for what is wrong did not end.\n"
    assert "the answer is wrong in 21 of 21 places" in process.stdout


def test_an_editor_with_the_folder_above_open_runs_the_tests(wrong: Student) -> None:
    tree = wrong.folder
    wrong.folder = tree.parent
    process = wrong.run("pytest", f"--rootdir={tree.parent}", str(tree / "tests"), *ONE)
    assert (process.returncode, process.stderr) == (1, "")
    assert TOLD in process.stdout
    assert f"Now open:  {LINEAR}:" in process.stdout


def test_a_report_that_is_written_before_the_search_claims_nothing_of_it(wrong: Student) -> None:
    """An editor, and a file for a CI server, get the text of each failure at the end of its test."""
    process = wrong.run("pytest", *ONE, "--junitxml=report.xml")
    report = (wrong.folder / "report.xml").read_text()
    assert "the answer is wrong in 21 of 21 places" in report
    assert "No line of your code was found" not in report
    assert TOLD in process.stdout


def test_tests_of_the_students_own_are_left_to_pytest_and_change_nothing_else(wrong: Student) -> None:
    (wrong.folder / "tests" / "test_mine.py").write_text(OWN)
    alone = wrong.run("pytest", "tests/test_mine.py")
    assert (alone.returncode, alone.stderr) == (1, "")
    assert "3 failed, 1 passed" in alone.stdout
    assert "E   assert 1 == 2" in alone.stdout
    beside = wrong.run("pytest", "tests/test_mine.py", "tests/test_1_softmax.py", "tests/test_3_linear.py")
    assert (beside.returncode, beside.stderr) == (1, "")
    assert "E   assert 3 == 4" in beside.stdout
    assert TOLD in beside.stdout
    board = wrong.run("whichline", "check", "softmax", "linear")
    assert (board.returncode, board.stderr) == (1, "")
    assert re.search(r"17/17 +2\.0/2", board.stdout)
    assert TOLD in board.stdout


@pytest.mark.parametrize(
    ("file", "end", "said"),
    [
        ("adapters.py", "def broken(:", "\nSyntaxError: invalid syntax\n"),
        ("adapters.py", "import no_such_module", "\nModuleNotFoundError: No module named 'no_such_module'\n"),
        ("adapters.py", "exit()", "this ends Python: leave it out"),
        (FUNCTIONAL, "exit()", "this ends Python: leave it out"),
        (FUNCTIONAL, "\0", f'{FUNCTIONAL}", line 1'),
        ("tests/test_mine.py", "undefined", "tests/test_mine.py:3: in <module>"),
    ],
)
def test_a_file_that_is_not_imported_shows_no_frame_of_ours(student: Student, file: str, end: str, said: str) -> None:
    (student.folder / "tests" / "test_mine.py").write_text("import cs336_basics.nn.functional\n")
    with (student.folder / file).open("a") as opened:
        opened.write(f"\n{end}\n")
    process = student.run("pytest", "-q", "tests/test_1_softmax.py" if file == "adapters.py" else "tests/test_mine.py")
    assert (process.returncode, process.stderr) == (2, "")
    assert said in process.stdout
    assert file in process.stdout
    assert end.replace("\0", "") in process.stdout
    assert not re.search("whichline|importlib" if file == "adapters.py" else "whichline", process.stdout)


@pytest.mark.parametrize("name", ["mine", pytest.param("3_linear", marks=pytest.mark.nightly)])
def test_a_watch_sees_what_is_saved_though_a_test_imports_it(wrong: Student, name: str) -> None:
    path = wrong.folder / "tests" / f"test_{name}.py"
    before = path.read_text() if path.exists() else ""
    path.write_text(f"from cs336_basics.nn.linear import Linear\n{before}\n\ndef test_mine():\n    assert Linear\n")
    with watching(wrong, "linear") as terminal:
        assert "0/5" in str(terminal.before)
        assert TOLD in str(terminal.before)
        wrong.replace(LINEAR, "return 2 * einsum(", "return einsum(")
        terminal.shows("5/5", "h hint")


def test_a_test_of_the_course_that_was_given_parameters_gets_a_line(student: Student) -> None:
    parametrized = '@pytest.mark.parametrize("n", [1])\ndef test_linear(case, n'
    student.replace("tests/test_3_linear.py", "def test_linear(case", parametrized)
    for command in (("pytest",), ("whichline", "check")):
        process = student.run(*command)
        said = " ".join(f"{process.stdout}{process.stderr}".split())
        assert "tests/test_3_linear.py:8: test_linear asks for case, n; a test gets `case` with the mark" in said
        assert "Traceback" not in said


def test_a_file_that_is_called_as_a_module_of_python_is_in_nobodys_way(student: Student) -> None:
    for name in ("typing", "dataclasses", "inspect", "random"):
        (student.folder / f"{name}.py").write_text("Matrix = list\n")
    process = student.run("whichline", "check", "linear")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("name", ["torch", "einops"])
def test_a_file_that_hides_a_package_is_named_in_a_line(student: Student, name: str) -> None:
    (student.folder / f"{name}.py").write_text("Matrix = list\n")
    process = subprocess.run([sys.executable, "-m", "pytest"], cwd=student.folder, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == f"your {name}.py hides the package {name}: rename it\n"


@pytest.mark.parametrize("command", [("pytest", "-q", "-k", "test_linear"), ("whichline", "check", "linear")], ids=str)
def test_the_top_of_a_file_reads_no_arguments_of_ours(student: Student, command: tuple[str, ...]) -> None:
    parse = "import argparse\n\nARGS = argparse.ArgumentParser().parse_args()\n"
    student.replace("adapters.py", "import torch\n", f"import torch\n{parse}")
    process = student.run(*command)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda text: f"{text}\nexit()\n".encode(), "This ends Python: leave it out, or put it below"),
        (lambda text: text.encode("utf-16"), "This file is not UTF-8 text: save it again as UTF-8, not as UTF-16."),
    ],
    ids=["exit", "UTF-16"],
)
def test_the_file_that_cannot_be_imported_is_named(student: Student, write: Callable[[str], bytes], said: str) -> None:
    """The adapters import it when they are called, and are not to blame."""
    path = student.folder / FUNCTIONAL
    path.write_bytes(write(path.read_text()))
    for command in (("pytest", "-q", "-k", "test_softmax"), ("whichline", "check", "softmax")):
        output = " ".join(student.run(*command).stdout.split())
        assert said in output
        assert re.search(rf"{FUNCTIONAL}:\d+, in <module>", output)
        assert "Now open: adapters.py" not in output


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Student:
    """The same student in a git submodule, in a uv workspace whose name is odd, with plugins of pytest at work."""
    above = tmp_path_factory.mktemp("Übung 1 (neu)", numbered=False)
    (above / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["*"]\n[tool.pytest.ini_options]\nx = 1\n')
    (above / "attention").mkdir()
    student = Student(above / "attention")
    student.replace(LINEAR, "return einsum(", "return 2 * einsum(")
    (student.folder / ".git").write_text("gitdir: ../.git/modules/attention\n")
    (student.folder / "conftest.py").write_text(PLUGINS)
    return student


@pytest.mark.parametrize("command", [("pytest", *ONE), ("whichline", "check", "linear")], ids=["pytest", "check"])
@pytest.mark.parametrize(
    "setting",
    [
        {"LC_ALL": "C", "HOME": "/nonexistent", "NO_COLOR": "1", "COLUMNS": "40", "CONDA_PREFIX": "/opt/conda"},
        pytest.param({"LC_ALL": "C.UTF-8", "FORCE_COLOR": "1", "COLUMNS": "300"}, marks=pytest.mark.nightly),
        pytest.param({"TERM": "dumb", "CI": "true", "COLUMNS": "60"}, marks=pytest.mark.nightly),
    ],
    ids=["plain and narrow", "colourful and wide", "dumb"],
)
def test_every_setting_tells_a_mistake(elsewhere: Student, command: tuple[str, ...], setting: dict[str, str]) -> None:
    process = elsewhere.run(*command, **setting)
    assert (process.returncode, process.stderr) == (1, "")
    assert TOLD in " ".join(process.stdout.split())
    assert ("\x1b" in process.stdout) == ("FORCE_COLOR" in setting)


@pytest.mark.nightly
def test_any_width_says_the_same_and_names_no_home_or_tmp(elsewhere: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**setting: str) -> tuple[str, str]:
        """What it says, and what is wrong without spaces: how lines are wrapped depends on the terminal."""
        said = elsewhere.run("whichline", "check", "linear", **setting).stdout
        return said, "".join(said.partition("Next: ")[2].partition("uv run pytest")[0].split())

    usual, wrong = check()
    assert wrong
    for columns in (20, 200):
        wrapped, same = check(COLUMNS=str(columns))
        assert (same, max(map(len, wrapped.splitlines())) <= columns) == (wrong, True)
    for name in ("HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert check(LC_ALL="C", LANG="C")[0] == usual == check(HOME="/proc", VIRTUAL_ENV="/opt/conda")[0]
    submitted = elsewhere.run("whichline", "submit", LC_ALL="C", LANG="C").stdout
    assert submitted.endswith(f"\n{elsewhere.folder / 'submission.zip'} is written: hand it in\n")

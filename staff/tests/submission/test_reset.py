"""`cs336 reset` gives the starter code of a problem back, and keeps what the student wrote."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from staff.tests.files import files_in, write_files
from staff.tools.student import FUNCTIONAL, LINEAR, ROOT, Student
from whichline.cli import main as cs336
from whichline.engine import problem_folder
from whichline.engine.assignment import load_problems
from whichline_grader.release.handout import stub


@pytest.fixture
def kit(student: Student, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The problems as a kit has them, with the starter code of each file; the student's folder is the current one."""
    folder = tmp_path_factory.mktemp("kit") / "problems"
    names = {name for problem in load_problems(ROOT).values() for name in problem.files}
    monkeypatch.setattr(problem_folder, "_find_folders", lambda: [folder])
    monkeypatch.chdir(student.folder / "cs336_basics")
    return write_files(folder / problem_folder.STARTER, {name: stub(name, (ROOT / name).read_text()) for name in names})


def reset(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cs336, ["reset", *arguments], input=typed)


def test_a_problem_begins_again_and_what_was_written_is_kept(student: Student, kit: Path) -> None:
    before = files_in(student.folder)
    for number in (1, 2):
        student.folder.joinpath(LINEAR).write_text(f"written = {number}\n")
        result = reset("linear")
        assert result.exit_code == 0, result.output
        said = [f"{LINEAR} is the starter code again", f"  what you wrote is in {LINEAR}.before-reset-{number}"]
        assert result.output.splitlines() == [*said, "adapters.py is as you left it"]
        assert b"raise NotImplementedError" in (student.folder / LINEAR).read_bytes()
    after = files_in(student.folder)
    assert [after.pop(f"{LINEAR}.before-reset-{number}") for number in (1, 2)] == [b"written = 1\n", b"written = 2\n"]
    assert after == before | {LINEAR: (kit / LINEAR).read_bytes()}


def test_a_file_that_is_gone_is_put_back(student: Student, kit: Path) -> None:
    (student.folder / LINEAR).unlink()
    assert reset("linear").output == f"{LINEAR} is the starter code again\nadapters.py is as you left it\n"


@pytest.mark.parametrize("typed", ["n\n", ""])
def test_a_file_with_other_problems_is_reset_only_if_that_is_wanted(student: Student, kit: Path, typed: str) -> None:
    before = files_in(student.folder)
    result = reset("softmax", typed=typed)
    assert result.exit_code == 1
    others = "scaled_dot_product_attention, rope"
    assert f"{FUNCTIONAL} also has what you wrote for {others}. Reset it all? [y/N]: " in result.output
    assert files_in(student.folder) == before
    assert reset("softmax", typed="y\n").exit_code == 0
    assert (student.folder / FUNCTIONAL).read_bytes() == (kit / FUNCTIONAL).read_bytes()
    assert (student.folder / f"{FUNCTIONAL}.before-reset-1").read_bytes() == before[FUNCTIONAL]


@pytest.mark.usefixtures("kit")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("linaer",), "Error: no problem is called linaer: is it linear?\n"),
        (("../../x",), "Error: no problem is called ../../x; the problems are softmax, "),
        ((), "Error: Missing argument 'PROBLEM'."),
    ],
)
def test_no_such_problem(student: Student, arguments: tuple[str, ...], said: str) -> None:
    before = files_in(student.folder)
    result = reset(*arguments)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert files_in(student.folder) == before


def test_there_is_nothing_to_reset(student: Student, kit: Path) -> None:
    windows = (kit / LINEAR).read_bytes().replace(b"\n", b"\r\n")
    (student.folder / LINEAR).write_bytes(windows)
    result = reset("linear")
    assert (result.exit_code, result.output) == (1, f"Error: linear: {LINEAR} is as at the start\n")
    assert (student.folder / LINEAR).read_bytes() == windows


def test_only_a_handout_has_starter_code(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(student.folder)
    result = reset("linear")
    said = f"Error: there is no starter code of {LINEAR} here: only the kit of a handout has it\n"
    assert (result.exit_code, result.output) == (1, said)

"""`cs336 update` puts the course's files in place, and touches nothing of the student's."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from staff.tests.files import files_in, write_files
from staff.tools.student import Student
from whichline.cli import main as cs336
from whichline.submission.archive import ArchiveError, write_archive
from whichline.submission.update import MANIFEST, Update, write_update


@pytest.fixture
def update(student: Student, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """Write an archive, without looking at what is in it, and run the command on it in a folder of the student's."""
    monkeypatch.chdir(student.folder / "cs336_basics")
    archive = tmp_path_factory.mktemp("download") / "update.zip"

    def run(files: dict[str, bytes], removed: tuple[str, ...] = ()) -> Result:
        write_archive(archive, MANIFEST, {"version": "0.1.1", "removed": removed}, files)
        return CliRunner().invoke(cs336, ["update", str(archive)])

    return run


def test_an_update(student: Student, update) -> None:
    before = files_in(student.folder)
    new = {"tests/test_1_softmax.py": before["tests/test_1_softmax.py"] + b"\n# mended\n"}
    new |= {"tests/new/test_6.py": b"1\n", "fixtures/linear/2d.safetensors": b"\xff\0"}
    same = {"tests/test_2_attention.py": before["tests/test_2_attention.py"]}
    result = update(new | same, removed=("tests/test_3_linear.py", "tests/test_99.py"))
    assert result.exit_code == 0, result.output
    changed = ["changed  fixtures/linear/2d.safetensors", "new      tests/new/test_6.py"]
    changed += ["changed  tests/test_1_softmax.py", "removed  tests/test_3_linear.py"]
    kept = "The files as they were before are in before-update-0.1.1-1/"
    assert result.output.splitlines() == [*changed, "Files changed: 4; this is release 0.1.1", kept]
    after = files_in(student.folder)
    assert {name: after.pop(name) for name in new} == new
    for name in ("tests/test_1_softmax.py", "fixtures/linear/2d.safetensors", "tests/test_3_linear.py"):
        assert after.pop(f"before-update-0.1.1-1/{name}") == before.pop(name)
    assert after == before


def test_the_kit_takes_the_place_of_the_one_before(student: Student, update) -> None:
    write_files(student.folder, {"kit/whichline-0.1.0.post1-py3-none-any.whl": b"old"})
    new = "kit/whichline-0.1.1.post2-py3-none-any.whl"
    assert update({new: b"new", "pyproject.toml": b"# with the new line\n"}).output.splitlines()[1:] == [
        "changed  pyproject.toml",
        "removed  kit/whichline-0.1.0.post1-py3-none-any.whl",
        "Files changed: 3; this is release 0.1.1",
        "The files as they were before are in before-update-0.1.1-1/",
        "The next uv run installs the new kit. With UV_NO_SYNC, run this:",
        f"uv pip install {new}",
    ]
    assert [path.read_bytes() for path in (student.folder / "kit").iterdir()] == [b"new"]


def test_a_kit_that_is_not_installed_is_told_in_a_line(student: Student) -> None:
    name = "kit/whichline-0.1.0.post1-py3-none-any.whl"
    wheel = write_files(student.folder, {name: b""}) / name
    told = f'the kit of this folder is not installed: run  uv pip install "{wheel}"\n'
    for command, before in ((("whichline", "check"), "Error: "), (("pytest",), "ERROR: ")):
        process = student.run(*command)
        assert process.stderr.strip() == f"{before}{told}".strip()
        assert process.returncode != 0


def test_what_is_there_already_is_no_change_whatever_ends_its_lines(student: Student, update) -> None:
    (student.folder / "README.md").write_bytes(b"one\r\ntwo\r\n")
    before = files_in(student.folder)
    assert update({"README.md": b"one\ntwo\n"}).output == "Files changed: 0; this is release 0.1.1\n"
    assert files_in(student.folder) == before


@pytest.mark.parametrize(
    ("files", "removed", "words"),
    [
        (["adapters.py"], [], "the update would touch adapters.py, which students write"),
        (["cs336_basics/nn/rope.py"], [], "the update would touch cs336_basics/nn/rope.py, which students write"),
        (["CS336_Basics/nn/rope.py"], [], "the update would touch CS336_Basics/nn/rope.py, which students write"),
        ([], ["Adapters.py"], "the update would touch Adapters.py, which students write"),
        ([".git/hooks/x"], [], "the update would touch .git/hooks/x, which is not the course's"),
        ([".VENV/bin/python"], [], "the update would touch .VENV/bin/python, which is not the course's"),
        ([], ["../other"], "'../other' is not a valid name in an archive"),
        (["tests"], [], "tests is in the way of tests, which the update brings; move it away"),
        (["LICENSE/x.md"], [], "LICENSE is in the way of LICENSE/x.md, which the update brings; move it away"),
        (["up/adapters.py"], [], "up is a link to another folder; put a folder there and try again"),
        (["down/adapters.py"], [], "down is a link to another folder; put a folder there and try again"),
    ],
)
def test_an_update_that_may_not_be(student: Student, update, files: list[str], removed: list[str], words: str) -> None:
    (student.folder / "LICENSE").write_bytes(b"mine\n")
    (student.folder / "up").symlink_to(student.folder / "..")
    (student.folder / "down").symlink_to(student.folder / "cs336_basics")
    before = files_in(student.folder)
    result = update({"README.md": b"new\n", **dict.fromkeys(files, b"")}, tuple(removed))
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert words in result.output
    assert files_in(student.folder) == before


@pytest.mark.parametrize("to", ["adapters.py", "cs336_basics/mine.py"])
def test_a_file_that_is_a_link_to_the_students(student: Student, update, to: str) -> None:
    before = files_in(student.folder)
    (student.folder / "README.md").symlink_to(to)
    assert update({"README.md": b"new\n"}).exit_code == 0
    assert not (student.folder / "README.md").is_symlink()
    after = files_in(student.folder)
    assert {name: after.get(name) for name in (*before, "README.md")} == {**before, "README.md": b"new\n"}
    assert not (student.folder / "cs336_basics/mine.py").exists()


def test_staff_cannot_write_what_students_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"the update would touch adapters\.py, which students write"):
        write_update(tmp_path / "x.zip", Update("1", {"adapters.py": b""}, ()))
    for version in ("../0.1", "", ".."):
        with pytest.raises(ArchiveError, match=f"^{version!r} is not a version"):
            write_update(tmp_path / "x.zip", Update(version, {}, ()))
    assert not list(tmp_path.iterdir())


def test_a_second_edit_does_not_take_the_place_of_the_copy_of_the_first(student: Student, update) -> None:
    test = student.folder / "tests/test_1_softmax.py"
    for edit in (b"# first\n", b"# second\n"):
        test.write_bytes(edit)
        assert update({"tests/test_1_softmax.py": b"# new\n"}).exit_code == 0
    copies = [student.folder / f"before-update-0.1.1-{n}" / "tests/test_1_softmax.py" for n in (1, 2)]
    assert [copy.read_bytes() for copy in copies] == [b"# first\n", b"# second\n"]

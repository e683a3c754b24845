"""`cs336 submit` hands in what it says, and nothing when something is wrong."""

import json
import re
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from staff.tests.files import write_files
from staff.tools.student import FUNCTIONAL, LINEAR, ROOT, ROPE, Student
from staff.tools.terminal import Terminal
from whichline.cli import main as cs336
from whichline.submission.archive import write_archive

DEEP = "has an expression nested too deep for Python; split it into several"
SCORE = {"passed": 4, "tests": 4, "points": 2.0}


def refusal(student: Student) -> str:
    """What the command says when it writes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(student.folder)
        result = CliRunner().invoke(cs336, ["submit"])
    assert result.exit_code == 1
    assert not (student.folder / "submission.zip").exists()
    return result.output


@pytest.mark.slow
def test_a_submission(student: Student) -> None:
    student.replace(LINEAR, "return einsum(", "return 2 * einsum(")
    write_files(student.folder / "cs336_basics", {"notes.txt": "to do", "mine.py": "# my own file\n"})
    process = student.run("whichline", "submit")
    assert process.returncode == 0, process.stderr
    goes_in, _, board = process.stdout.partition("\n\n")
    assert goes_in.startswith("Goes in\n  adapters.py\n")
    assert "  cs336_basics/mine.py\n" in goes_in
    assert "notes.txt" not in goes_in
    assert "0/5" in board
    assert re.sub(r"\d+ of 2\d", "N of M", board).endswith(
        "\nNot done yet:\n  linear: 0 of 5 tests pass\n  multihead_self_attention: N of M tests pass\n"
        "The tests ran as in grading: without other files, network or processes.\n"
        "You can hand this in now, go on working, and hand in again until the deadline.\n\n"
        f"{student.folder / 'submission.zip'} is written: hand it in\n"
    )
    with zipfile.ZipFile(student.folder / "submission.zip") as zipped:
        manifest = json.loads(zipped.read("manifest.json"))
        assert sorted([*manifest["files"], "manifest.json"]) == zipped.namelist()
        for name, digest in manifest["files"].items():
            content = (student.folder / name).read_bytes()
            assert (zipped.read(name), digest) == (content, sha256(content).hexdigest())
    assert manifest["board"]["linear"] == {"passed": 0, "tests": 5, "points": 0.0}
    assert (manifest["board"]["rope"]["points"], manifest.keys()) == (2.0, {"suite", "torch", "board", "files"})
    process = student.run("whichline", "submit", "--check", "submission.zip")
    assert process.returncode == 0
    assert process.stdout.startswith("submission.zip holds\n  adapters.py\n")
    assert "  linear: 0 of 5 tests, 0.0 points\n" in process.stdout


@pytest.mark.slow
def test_what_would_earn_nothing_is_said_before_it_is_packed(student: Student) -> None:
    student.unwrite("adapters.py")
    process = student.run("whichline", "submit")
    assert process.returncode == 0
    nothing = "This submission would earn 0 points: none of the public tests passes yet."
    assert process.stdout.splitlines()[-12:-9] == [nothing, "", "Not done yet:"]


@pytest.mark.slow
def test_what_grading_refuses_is_told_with_its_line(student: Student) -> None:
    """All of it works at home: a log, a table beside the code, and a file of the student's own tests."""
    logs = "logging.basicConfig(filename='attention.log')"
    student.replace(FUNCTIONAL, "import math\n", f"import logging\nimport math\n{logs}\n")
    student.replace(LINEAR, "import torch\n", "import torch\nopen('sizes.json')\n")
    write_files(student.folder, {"sizes.json": "[]", "tests/test_mine.py": "open('sizes.json')\n"})
    process = student.run("whichline", "submit")
    assert process.returncode == 0, process.stderr
    line = (student.folder / FUNCTIONAL).read_text().split(logs)[0].count("\n") + 1
    said = f"{FUNCTIONAL}:{line} uses attention.log: in grading there are no files, network or processes"
    assert said in " ".join(process.stdout.split())
    assert "  linear: 0 of 5 tests pass\n" in process.stdout
    assert not (student.folder / "attention.log").exists()


# Calls each program that has the function, and gives what the last one gives.
ALL_OF_THEM = """
def _call_all(functions):
    def call(*given, **named):
        return [function(*given, **named) for function in functions][-1]

    return call

for name in [name for name in globals() if name.startswith("run_")]:
    globals()[name] = _call_all([vars(each)[name] for each in PROGRAMS if hasattr(each, name)] + [globals()[name]])
"""


@pytest.mark.nightly
def test_right_programs_are_refused_nothing(student: Student) -> None:
    programs = sorted((ROOT / "staff/right_programs").glob("*.py"))
    for program in programs:
        shutil.copy(program, student.folder / "cs336_basics")
    adapters = student.folder / "adapters.py"
    imported = "".join(f"import cs336_basics.{program.stem}\n" for program in programs)
    listed = ", ".join(f"cs336_basics.{program.stem}" for program in programs)
    adapters.write_text(f"{adapters.read_text()}\n{imported}PROGRAMS = [{listed}]\n{ALL_OF_THEM}")
    process = student.run("whichline", "submit")
    assert "178 of 178 public tests passed" in process.stdout
    assert "in grading" not in process.stdout


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (ROPE, None, f"nothing was written: {ROPE} is missing; put it back, even if it is empty\n"),
        (ROPE, b"import torch\ndef broken(:\n", f"nothing was written: {ROPE}:2: invalid syntax\n"),
        (ROPE, b"x = " + b"-" * 60_000 + b"1", f"nothing was written: {ROPE} {DEEP}\n"),
        (ROPE, b"\0\xff", f"nothing was written: {ROPE}"),
        ("cs336_basics/rope copy.py", b"", "'cs336_basics/rope copy.py' is not a valid name in an archive"),
    ],
    ids=["missing", "no Python", "too deep", "no text", "a name that not every system can store"],
)
def test_a_file_that_cannot_be_handed_in(student: Student, file: str, content: bytes | None, said: str) -> None:
    path = student.folder / file
    path.unlink() if content is None else path.write_bytes(content)
    refused = refusal(student)
    assert refused.startswith(f"Error: {said}")
    assert refused.count("\n") == 1


@pytest.mark.parametrize("line", ["import helpers", "from helpers import x", "import whichline.lab", "import tests"])
def test_an_import_of_what_stays_out(student: Student, line: str) -> None:
    (student.folder / "helpers.py").write_text("x = 1\n")
    student.replace(ROPE, "import torch\n", f"import torch\n{line}\n")
    module = line.split()[1].partition(".")[0]
    said = f"{ROPE} imports {module}, which is not handed in; remove the import, or move your module into cs336_basics/"
    assert refusal(student) == f"Error: nothing was written: {said}\n"


@pytest.mark.slow
def test_ctrl_c_writes_nothing(student: Student) -> None:
    endless = f"import os; os.system('touch {student.folder}/running')\n        while True: pass"
    student.replace(LINEAR, "return einsum(", f"{endless}\n        return einsum(")
    terminal = Terminal(student.folder, "submit")
    terminal.wait_for(student.folder / "running")
    terminal.press_ctrl_c()
    terminal.shows("Aborted!")
    assert terminal.end() == 1
    assert not (student.folder / "submission.zip").exists()


@pytest.mark.parametrize("board", [None, [], {"rope": 3}, {"rope": SCORE | {"passed": "all"}}, {"\x1b[2Jrope": SCORE}])
def test_a_manifest_that_is_none(tmp_path: Path, board: object) -> None:
    write_archive(tmp_path / "x.zip", "manifest.json", {"suite": "1", "torch": "2", "board": board}, {})
    result = CliRunner().invoke(cs336, ["submit", "--check", str(tmp_path / "x.zip")])
    assert result.exit_code == 1
    assert result.output == f"Error: the manifest.json of {tmp_path / 'x.zip'} cannot be read; is it the right zip?\n"

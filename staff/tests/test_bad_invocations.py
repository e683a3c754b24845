"""Whatever a command is given, it says in a line or two what is wrong: no traceback, and nothing is written."""

import os
import shlex
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from staff.tests import ROOT
from staff.tests.grading.test_grades import gradebook_with
from whichline.cli import main as cs336
from whichline_grader.hidden.release import load_graded_problems

# FOLDER has what the fixture below puts there.
INVOCATIONS = """
nothing
check softmax lineal
check --al
check --spare=yes
hint softmax --step x
submit --check
submit --check FOLDER
submit --check FOLDER/empty.zip
submit more
update
update FOLDER/none.zip
update FOLDER
update FOLDER/text.zip
update FOLDER/empty.zip
debug --case
bench --length 0
compare --seed x
show one two
show --layer x
staff nothing
staff grade
staff grade FOLDER/none.zip
staff grade FOLDER --jobs 0
staff grade FOLDER --jobs x
staff grade FOLDER --sandbox docker
staff grade FOLDER --out FOLDER/text.zip
staff grade FOLDER --attempt best
staff report FOLDER/none
staff report FOLDER/damaged
staff report FOLDER/damaged-later
staff adjust
staff adjust ada --because x --out FOLDER
staff adjust ada --waive --because x --out FOLDER/damaged
staff adjust ada softmax
staff adjust ada softmax 1 --because x --out FOLDER/none
staff adjust ada softmax 1 --because x --out FOLDER/damaged
staff rescore --out FOLDER/none
staff rescore --out FOLDER/damaged-later
staff rescore FOLDER/graded
staff rescore --against FOLDER --out FOLDER/graded
staff rescore --against FOLDER/graded --out FOLDER/graded
staff grade FOLDER --answers FOLDER/none
staff grade FOLDER --answers FOLDER FOLDER/none
staff grade --answers FOLDER FOLDER/graded
staff reproduce FOLDER
staff reproduce FOLDER test_softmax --sandbox docker
staff new-course
staff new-course FOLDER/text.zip
staff new-course FOLDER/text.zip/course
staff new-course FOLDER/new --secret x
staff gradescope -o FOLDER
staff handout
staff handout FOLDER
staff handout FOLDER/text.zip
staff handout FOLDER/new --since FOLDER/none.zip
staff handout FOLDER/new --since FOLDER/text.zip
staff verify everything
staff verify everything --write
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "text.zip").write_text("no archive")
    zipfile.ZipFile(folder / "empty.zip", "w").close()
    for name in ("damaged", "damaged-later", "graded"):
        (folder / name).mkdir()
    (folder / "damaged" / "gradebook.sqlite").write_text("no gradebook, but long enough to be looked at" * 9)
    gradebook = gradebook_with(folder / "graded", ada=2.0)
    gradebook.score_with(load_graded_problems(ROOT))  # a decision scores with other weights first, and writes reports
    gradebook.close()
    gradebook_with(folder / "damaged-later", **{f"s{i}": 2.0 for i in range(40)}).close()
    path = folder / "damaged-later" / "gradebook.sqlite"
    with path.open("r+b") as file:
        for page in range(3, os.path.getsize(path) // 4096):
            file.seek(4096 * page)
            file.write(b"\xff" * 4096)
    with pytest.raises(sqlite3.DatabaseError), sqlite3.connect(path) as connection:
        connection.execute("SELECT * FROM attempt").fetchall()
    return folder


def files_in(folder: Path) -> set[Path]:
    """All but those that SQLite puts beside a database."""
    return {path for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal", ".writing"))}


@pytest.mark.parametrize("invocation", INVOCATIONS.strip().splitlines())
def test_a_bad_invocation_gets_a_line(folder: Path, invocation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    before = files_in(folder)
    arguments = [argument.replace("FOLDER", str(folder)) for argument in shlex.split(invocation)]
    result = CliRunner().invoke(cs336, arguments)
    assert isinstance(result.exception, SystemExit), result.output
    assert result.exit_code in (1, 2)
    said = result.output.strip().splitlines()
    assert said[-1].startswith("Error: ") or said[-2].startswith("Error: "), result.output
    assert "Traceback" not in result.output
    assert files_in(folder) == before


def test_a_python_without_the_packages_says_how_to_run_the_command():
    command = [sys.executable, "-S", "-m", "whichline", "check"]  # -S: without site-packages
    process = subprocess.run(command, cwd=ROOT / "packages/whichline", capture_output=True, text=True, check=False)
    assert process.returncode == 1
    how = "put uv run before the command, as in uv run pytest"
    assert process.stderr == f"{sys.executable} lacks the assignment's packages: {how}\n"

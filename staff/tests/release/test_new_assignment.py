"""`staff new-assignment` writes an assignment that runs at once, and refuses a name or a folder that will not do."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly


def run(folder: Path, module: str, *arguments: str) -> str:
    """Run a module in a folder; what it prints, and then its exit status."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f"{process.stdout}{process.stderr}{process.returncode}"


def test_what_it_writes_is_tested_and_verified_as_it_is(tmp_path: Path) -> None:
    said = "The first line of each file says what to change."
    assert said in run(tmp_path, "whichline", "staff", "new-assignment", "x")
    folder = tmp_path / "x"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert len(files) > 15
    assert all("CHANGE" in path.read_text().partition("\n")[0] for path in files if "__pycache__" not in path.parts)
    assert "2 passed" in run(folder, "pytest")
    assert "now uv run x submit" in run(folder, "whichline", "check")
    for command in ("init", "add ."):
        subprocess.run(["git", *command.split()], cwd=folder, capture_output=True, check=True)
    assert run(folder, "whichline", "staff", "verify").endswith("No errors\n0")
    problem = folder / "problems/standardize/reference.py"
    problem.write_text(problem.read_text().replace("# 1 Standardize", "# 2 Standardise"))
    said = "the reference of run_standardize names the section 2 Standardise, and no heading in docs/ begins with that"
    assert said in run(folder, "whichline", "staff", "verify")


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("My-Course", "My-Course cannot be the name of the students' package: choose lower-case letters"),
        ("tests", "tests cannot be the name of the students' package: choose lower-case letters"),
        ("full", "full is not an empty folder; name another\n1"),
    ],
)
def test_a_folder_that_will_not_do(tmp_path: Path, folder: str, said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert said in run(tmp_path, "whichline", "staff", "new-assignment", folder)
    assert sorted(tmp_path.rglob("*")) == before

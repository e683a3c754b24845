"""A copy of what a student works in, to be broken by a test."""

import os
import shutil
import subprocess
from pathlib import Path

from staff.tools.forked import run_forked
from whichline.engine.assignment import find_root
from whichline_grader.release.handout import cut_solution

ROOT = find_root(Path(__file__).parent)
COMPILED = shutil.ignore_patterns("__pycache__")
FUNCTIONAL, LINEAR, ROPE = (f"cs336_basics/nn/{name}.py" for name in ("functional", "linear", "rope"))


def write_submission(folder: Path, addition: str) -> Path:
    """The solution, with `addition` at the end of its adapters."""
    shutil.copytree(ROOT / "cs336_basics", folder / "cs336_basics", ignore=COMPILED)
    source = (ROOT / "adapters.py").read_text(encoding="utf-8")
    (folder / "adapters.py").write_text(f"{source}\n\n{addition}\n", encoding="utf-8")
    return folder


class Student:
    """A student's folder, at first with the solution in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("adapters.py", "assignment.toml", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        for name in ("cs336_basics", "tests", "fixtures"):
            shutil.copytree(ROOT / name, folder / name, ignore=COMPILED)

    def replace(self, file: str, old: str, new: str) -> None:
        """Make a mistake in one file."""
        text = (self.folder / file).read_text()
        assert old in text, f"{file} holds no {old!r}"
        (self.folder / file).write_text(text.replace(old, new))

    def unwrite(self, file: str) -> None:
        """Put the file back to what a student starts from."""
        stub, _ = cut_solution(file, (self.folder / file).read_text())
        (self.folder / file).write_text(stub)

    def run(self, *command: str, **setting: str) -> subprocess.CompletedProcess[str]:
        """Run a module, `pytest` or `whichline`, in the folder, on a terminal of 80 columns, or in another setting."""
        environment = os.environ | {"COLUMNS": "80"} | setting
        finished = run_forked(command, self.folder, environment)
        encoding = environment.get("PYTHONIOENCODING", "utf-8")
        out, err = (each.decode(encoding) for each in (finished.stdout, finished.stderr))
        return subprocess.CompletedProcess(finished.args, finished.returncode, out, err)

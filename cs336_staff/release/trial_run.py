"""Trying a handout before it ships: as a student would, in an environment of its own."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pexpect

from cs336_kit.engine.assignment import STUDENT_FILES, load_problems
from cs336_staff.release.walk import walk

UNWRITTEN = "def run_softmax(in_features, dim):\n    raise NotImplementedError\n"


class TrialError(Exception):
    """A handout does not work; the message says what was tried and what came."""


def try_out(root: Path, out: Path) -> Iterator[str]:
    """Go through a student's term with a clone of the handout, and say after each step what was tried.

    Args:
        root: the solved tree.
        out: what `write_handout` wrote.

    Raises:
        TrialError, WalkError: a step fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "assignment"
        _run(Path(folder), 0, "git", "clone", "--quiet", str(out.resolve() / "tree"), str(clone))
        _run(clone, 0, "uv", "sync", "--quiet", "--locked")
        yield "a clone of the handout installs from its own lock file"

        written = walk(root, clone)
        yield f"every file can be imported, and each problem in its turn asks for what is missing: {written} functions"

        for name in STUDENT_FILES:
            target = clone / name
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            copy = shutil.copytree if (root / name).is_dir() else shutil.copy
            copy(root / name, target)
        _run(clone, 0, "uv", "run", "pytest", "--quiet")
        yield "with the solution laid over it, all public tests pass"

        problem = next(iter(load_problems(root)))
        _run(clone, 0, "uv", "run", "cs336", "check")
        _run(clone, 0, "uv", "run", "cs336", "hint", problem)
        _run(clone, 0, "uv", "run", "cs336", "submit")
        _run(clone, 0, "uv", "run", "cs336", "submit", "--check", "submission.zip")
        yield "check, hint and submit work there, and its submission.zip reads back"

        _watch(clone, problem)
        yield "check --watch shows the board, and another one after a save"

        results = Path(folder) / "results"
        _run(root, 0, "uv", "run", "cs336", "staff", "grade", str(clone / "submission.zip"), "--out", str(results))
        report = json.loads((results / "submission" / "results.json").read_text())
        if lost := [test["name"] for test in report["tests"] if test["status"] != "passed"]:
            raise TrialError(f"submission.zip should get all points, but it fails {', '.join(lost)}")
        yield f"graded, submission.zip gets {report['score']:g} of {report['extra_data']['maximum']:g} points"


def _watch(tree: Path, problem: str) -> None:
    """Unwrite a problem while the board is watched on a terminal, and put it back."""
    adapters = tree / "adapters.py"
    written = adapters.read_text()
    command = ["run", "cs336", "check", "--watch", problem]
    terminal = pexpect.spawn(
        "uv", command, cwd=tree, env=os.environ | {"TERM": "dumb"}, dimensions=(24, 80), encoding="utf-8", timeout=120
    )
    try:
        for text, state in ((written, "passed"), (f"{written}\n\n{UNWRITTEN}", "not implemented"), (written, "passed")):
            adapters.write_text(text)
            terminal.expect(rf"{problem} +{state}.*q quit")
        terminal.send("q")
        terminal.expect(pexpect.EOF)
    except pexpect.ExceptionPexpect:
        raise TrialError(f"`uv {' '.join(command)}` did not go on after this:\n{terminal.before}") from None
    finally:
        terminal.close(force=True)
    if terminal.exitstatus != 0:
        raise TrialError(f"`uv {' '.join(command)}` ended with status {terminal.exitstatus} after q")


def _run(folder: Path, expected: int | None, *command: str) -> None:
    """Run a command that should end with the status `expected`, or with any if that is None."""
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if expected is not None and process.returncode != expected:
        output = (process.stdout + process.stderr).strip()
        raise TrialError(f"`{' '.join(command)}` ended with status {process.returncode}:\n{output}")

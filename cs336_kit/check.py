"""Running the public suite in a process of its own, so that the board is shown whatever student code does."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from cs336_kit.board import Verdict


class SuiteError(Exception):
    """The suite could not be run at all; the message says why."""


def run_public_suite(root: Path, tests: Collection[str]) -> list[Verdict]:
    """Run the named test functions and return a verdict for each planned test.

    Raises:
        SuiteError: nothing was planned, for example since `adapters.py` does not parse.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verdicts"
        command = [sys.executable, "-m", "pytest", "--quiet", f"--verdicts={path}", "-k", " or ".join(tests)]
        process = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    broken = dict.fromkeys(line["broken"] for line in lines if "broken" in line)
    planned = [line for line in lines if "planned" in line]
    if broken or not planned:
        raise SuiteError("\n\n".join(broken) or (process.stdout + process.stderr).strip())
    ran = {line["ran"]: line for line in lines if "ran" in line}
    return list(_verdicts(planned, ran, process.returncode))


def _verdicts(planned: list[dict[str, Any]], ran: dict[str, dict[str, Any]], exit_status: int) -> Iterable[Verdict]:
    """In the order of the plan; the first test without a verdict is the one during which the process ended."""
    message = f"the process ended during this test, with exit status {exit_status}"
    for line in planned:
        if result := ran.get(line["planned"]):
            yield Verdict(line["test"], line["case"], result["passed"], result["message"])
        else:
            yield Verdict(line["test"], line["case"], False, message)
            message = "did not run, since the process had ended"

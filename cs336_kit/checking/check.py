"""Running the public suite in a process of its own, so that the board is shown whatever student code does."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from cs336_kit.checking.board import NOT_RUN, Verdict


class SuiteError(Exception):
    """The suite could not be run at all; the message says why."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C; `verdicts` are those so far."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts = verdicts


def run_public_suite(root: Path, tests: Collection[str]) -> list[Verdict]:
    """Run the named test functions and return a verdict for each planned test.

    Raises:
        SuiteError: nothing was planned, for example since `adapters.py` does not parse.
        Stopped: the user pressed Ctrl-C.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verdicts"
        command = [sys.executable, "-m", "pytest", "--quiet", f"--verdicts={path}", "tests", "-k", " or ".join(tests)]
        try:
            process = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False)
        except KeyboardInterrupt:
            ending = "you pressed Ctrl-C during this test: is there an endless loop in your code?"
            raise Stopped(read_verdicts(path, ending)) from None
        verdicts = read_verdicts(path, f"the process ended during this test, with exit status {process.returncode}")
    if not verdicts:
        raise SuiteError((process.stdout + process.stderr).strip())
    return verdicts


def read_verdicts(path: Path, ending: str) -> list[Verdict]:
    """A verdict for each test that `path` says was planned, in the order of the plan.

    Args:
        path: what `--verdicts` wrote; an empty plan if it does not exist.
        ending: the message of the first test that has no verdict, the one during which the writing ended.

    Raises:
        SuiteError: the student's files cannot be imported.
    """
    written, _, _ = path.read_text(encoding="utf-8").rpartition("\n") if path.exists() else ("", "", "")
    lines = [json.loads(line) for line in written.splitlines()]
    if broken := dict.fromkeys(line["broken"] for line in lines if "broken" in line):
        raise SuiteError("\n\n".join(broken))
    ran = {line["ran"]: line for line in lines if "ran" in line}
    named = {line["named"]: "\n".join(line["lines"]) for line in lines if "named" in line}
    return list(_verdicts([line for line in lines if "planned" in line], ran, named, ending))


def _verdicts(
    planned: list[dict[str, Any]], ran: dict[str, dict[str, Any]], named: dict[str, str], ending: str
) -> Iterable[Verdict]:
    for line in planned:
        test, case, name = line["test"], line["case"], line["planned"]
        if result := ran.get(name):
            yield Verdict(test, case, result["passed"], result["message"], result["details"], named.get(name, ""))
        else:
            yield Verdict(test, case, False, ending)
            ending = NOT_RUN

"""Starting `child`, a process that collects the tests once more, and asking it about failing tests.

Nothing here imports torch.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from whichline.engine.finding import Finding
from whichline.plain import NAME, Names, Table, TableError, read_table

START = "from whichline.plain.child import main; main()"
MOST_WAITING = 900.0  # seconds for one test, even on a busy machine
IN_ALL = 600.0  # seconds of processor time, for all tests of a run


def diagnose(
    tests: Sequence[str] = (),
    *,
    code: Sequence[str] | None = None,
    reference: str | None = None,
    names: Mapping[str, str] | None = None,
    root: Path | str = ".",
) -> list[Finding]:
    """Run the tests of a plain suite in a process of their own, and find the wrong lines.

    What is None is read from pyproject.toml.

    Args:
        tests: arguments of pytest: files, test ids, options; none for all tests.
        code: the packages and modules to search.
        reference: the package or module with functions of the same names.
        names: what has another name in the reference.
        root: the folder of pyproject.toml, where pytest starts.

    Returns:
        One finding for each wrong line, with the tests that it explains.

    Raises:
        TableError: something is None, and pyproject.toml has no table.
    """
    root = Path(root).resolve()
    if code is None or reference is None:
        table = read_table(root)
        if table is None:
            raise TableError(f"{root / 'pyproject.toml'} has no table {NAME}")
        code, reference = code or table.code, reference or table.reference
        names = table.names.table if names is None else names
    follower = Follower(Table(tuple(code), reference, root, Names(names or {})), tests, root, ["", *sys.path])
    try:
        return follower.ask_all()
    finally:
        follower.stop()


class Follower:
    """Has failing tests explained by another process, which it starts for the first one.

    It runs pytest with the same `args` in the same `folder`, and Python with the same `path`.
    """

    def __init__(self, table: Table, args: Sequence[str], folder: Path, path: Sequence[str]) -> None:
        self.settings = {
            "args": list(args),
            "path": list(path),
            "code": table.code,
            "reference": table.reference,
            "names": dict(table.names.table),
            "root": str(table.root),
        }
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.seconds = 0.0  # of processor time
        self.lines: queue.Queue[str] = queue.Queue()

    def ask(self, test: str) -> list[Finding]:
        """Ask which line makes a test fail, or why no line is known."""
        if self.seconds > IN_ALL:
            used = f"{IN_ALL:.0f} seconds of processor time"
            return report(test, f"The searches of this run have used {used}: run this test by itself.")
        try:
            self._send(test)
            line = self.lines.get(timeout=MOST_WAITING)
        except queue.Empty:
            self.stop()
            return report(test, f"The search took longer than {MOST_WAITING:.0f} seconds and was stopped.")
        except OSError:
            line = ""
        if not line:
            return report(test, f"The process that explains the test ended: {self._read_errors()}")
        self.seconds, findings = json.loads(line)
        return [Finding.from_json(each) for each in findings]

    def ask_all(self) -> list[Finding]:
        """Run all tests, and ask about those that fail; return each finding once, with the tests that it explains."""
        self._send("")
        if not (line := self.lines.get()):
            return report("", f"The tests could not be collected: {self._read_errors()}")
        found: dict[str, Finding] = {}
        for each in (each for test in json.loads(line)[1] for each in self.ask(test)):
            before = found.setdefault(each.id, each)
            found[each.id] = replace(before, tests=tuple(dict.fromkeys((*before.tests, *each.tests))))
        return list(found.values())

    def _send(self, test: str) -> None:
        begins = [] if self.process else [self.settings]
        process = self.process = self.process or self._start()
        assert process.stdin is not None
        process.stdin.writelines(f"{json.dumps(each)}\n" for each in (*begins, test))
        process.stdin.flush()

    def _start(self) -> subprocess.Popen[str]:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self.lines = queue.Queue()
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
        )
        threading.Thread(target=self._read, args=(process, self.lines), daemon=True).start()
        return process

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def _read_errors(self) -> str:
        if self.process:
            self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        self.stop()
        return lines[-1] if lines else "it printed nothing"

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.errors.close()


def report(test: str, line: str) -> list[Finding]:
    """Make a finding without a place, which says why no line is known."""
    return [Finding("", f"{test}-unexplained", (line,), tests=(test,))]

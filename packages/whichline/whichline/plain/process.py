"""The other end of `child`: a process that collects the tests once more, and is asked of those that fail.

Nothing here imports torch.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from whichline.engine.finding import Finding
from whichline.plain.table import Table

START = "from whichline.plain.child import main; main()"
MOST_SECONDS = 120.0  # for one test; the first one waits for imports, too
Answer = tuple[list[Finding], str]  # findings, or in one line why there are none


class Follower:
    """Follows failing tests in a process of its own, which starts with the first of them.

    Args:
        table: what the suite is about.
        args: of pytest.
        folder: in which pytest was started.
        path: where modules are found.
    """

    def __init__(self, table: Table, args: Sequence[str], folder: Path, path: Sequence[str]) -> None:
        self.settings = {
            "args": list(args),
            "path": list(path),
            "code": table.code,
            "reference": table.reference,
            "root": str(table.root),
        }
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()

    def ask(self, test: str) -> Answer:
        """Ask what makes a test fail, by its id."""
        try:
            self._send(test)
            line = self.lines.get(timeout=MOST_SECONDS)
        except queue.Empty:
            self.stop()
            return [], f"The search took longer than {MOST_SECONDS:.0f} seconds, and was ended."
        except OSError:
            line = ""
        if not line:
            return [], f"The process that follows the test ended: {self._read_errors()}"
        told = json.loads(line)
        return [Finding.from_json(each) for each in told["findings"]], told["line"]

    def _send(self, test: str) -> None:
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(test) + "\n")
        self.process.stdin.flush()

    def _start(self) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self.lines = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self.settings) + "\n")
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

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
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.errors.close()

"""The `cs336` command, or pytest, in a terminal of its own, for keys and Ctrl-C."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect

from staff.tools.student import Student

# What the last line of the watch says after a run.
ENDED = r"\d\d:\d\d:\d\d, (\d+\.\d\d) s"


class Terminal(pexpect.spawn):
    """24 lines by 80 columns; a "dumb" one has no colours, which would stand between words."""

    def __init__(self, folder: Path, *arguments: str, kind: str = "dumb", module: str = "whichline") -> None:
        command = ["-m", module, *arguments]
        super().__init__(
            sys.executable,
            command,
            cwd=folder,
            env={**os.environ, "TERM": kind},
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=120,
        )
        self.delaybeforesend = None

    def shows(self, *texts: str) -> None:
        """Wait for these, one after the other."""
        for text in texts:
            self.expect_exact(text)

    def wait_for(self, path: Path) -> None:
        """Wait for the command to make a file."""
        while not path.exists():
            assert self.isalive(), self.read()
            time.sleep(0.1)

    def end(self) -> int | None:
        """Wait for the end of the command: its exit status."""
        self.expect(pexpect.EOF)
        self.wait()
        return self.exitstatus


@contextmanager
def watching(student: Student, *arguments: str, kind: str = "dumb") -> Iterator[Terminal]:
    """`cs336 check --watch` after its first board; it has to end by itself on q."""
    terminal = Terminal(student.folder, "check", "--watch", *arguments, kind=kind)
    try:
        terminal.expect(ENDED)
        yield terminal
        terminal.send("q")
        assert terminal.end() == 0
    finally:
        terminal.close(force=True)

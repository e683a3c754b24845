"""The `cs336` command, or pytest, in a terminal of its own, for keys and Ctrl-C."""

import os
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
from pexpect.fdpexpect import fdspawn

from staff.tools.forked import begin_forked, wait_for
from staff.tools.student import Student

# What the last line of the watch says after a run.
ENDED = r"\d\d:\d\d:\d\d, (\d+\.\d\d) s"


class Terminal(fdspawn):
    """24 lines by 80 columns; a "dumb" one has no colours, which would stand between words."""

    def __init__(self, folder: Path, *arguments: str, kind: str = "dumb", module: str = "whichline") -> None:
        ours, theirs = os.openpty()
        termios.tcsetwinsize(ours, (24, 80))
        files = [os.ttyname(theirs)] * 3
        self.process_id = begin_forked((module, *arguments), folder, {**os.environ, "TERM": kind}, files, terminal=True)
        os.close(theirs)
        super().__init__(ours, encoding="utf-8", timeout=120)

    def shows(self, *texts: str) -> None:
        """Wait for these, one after the other."""
        for text in texts:
            self.expect_exact(text)

    def press_ctrl_c(self) -> None:
        self.send("\x03")

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.child_fd)[3] & termios.ECHO)

    def wait_for(self, path: Path) -> None:
        """Wait for the command to make a file."""
        end = time.monotonic() + 120
        while not path.exists():
            assert time.monotonic() < end, f"there is no {path}"
            time.sleep(0.1)

    def end(self) -> int:
        """Wait for the end of the command: its exit status."""
        self.expect(pexpect.EOF)
        self.close()
        return wait_for(self.process_id)


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
        terminal.close()  # which ends what still runs there

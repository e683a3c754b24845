"""Runs of the public tests in warm processes (`cs336_kit.checking.warm`), one run at a time."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

# Called from another thread when a run has ended, with the file of its verdicts and its exit status.
Ended = Callable[[Path, int], None]


class Runner(Protocol):
    """Starts runs; a run that is under way when the next one starts is killed, and `ended` need not hear of it."""

    def start(self, tests: Collection[str], verdicts: Path) -> None:
        """Run the named test functions and have their verdicts written to a new file."""
        ...

    def close(self) -> None:
        """Kill what is running or waiting."""
        ...


class Forks:
    """Runs in forks of one warm process, which is started again should student code kill it."""

    def __init__(self, root: Path, ended: Ended) -> None:
        self.root = root
        self.ended = ended
        self.verdicts = Path()
        self.process = self._start_process()

    def start(self, tests: Collection[str], verdicts: Path) -> None:
        if self.process.poll() is not None:
            self.process = self._start_process()
        self.verdicts = verdicts
        _send(self.process, tests, verdicts)

    def close(self) -> None:
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()  # it kills its child and ends
        try:
            self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it is still importing torch, and has no child
            _kill(self.process)

    def _start_process(self) -> subprocess.Popen[bytes]:
        process = _warm(self.root, "fork")
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        for line in _pipe(process.stdout):
            reply = json.loads(line)
            self.ended(Path(reply["verdicts"]), reply["status"])
        status = process.wait()
        if process is self.process:
            self.ended(self.verdicts, status)


class Spares:
    """Each run in a process of its own, while the next one warms up."""

    def __init__(self, root: Path, ended: Ended) -> None:
        self.root = root
        self.ended = ended
        self.running: subprocess.Popen[bytes] | None = None
        self.spare = _warm(root, "once")

    def start(self, tests: Collection[str], verdicts: Path) -> None:
        if self.running:
            _kill(self.running)
        self.running = self.spare
        _send(self.running, tests, verdicts)
        threading.Thread(target=self._wait, args=(self.running, verdicts), daemon=True).start()
        self.spare = _warm(self.root, "once")

    def close(self) -> None:
        for process in (self.running, self.spare):
            if process:
                _kill(process)

    def _wait(self, process: subprocess.Popen[bytes], verdicts: Path) -> None:
        self.ended(verdicts, process.wait())


def _warm(root: Path, how: str) -> subprocess.Popen[bytes]:
    """A session of its own keeps Ctrl-C away from it, and lets all that it starts be killed together."""
    command = [sys.executable, "-m", "cs336_kit.checking.warm", how]
    return subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    )


def _send(process: subprocess.Popen[bytes], tests: Collection[str], verdicts: Path) -> None:
    line = json.dumps({"verdicts": str(verdicts), "tests": list(tests)})
    with suppress(BrokenPipeError):  # it has ended, which its thread reports
        _pipe(process.stdin).write(line.encode() + b"\n")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe

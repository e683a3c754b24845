"""A process that has imported torch and collected the public tests, and runs them when a line comes.

    python -m cs336_kit.checking.warm fork     runs them in a fork, once for each line (Linux)
    python -m cs336_kit.checking.warm once     runs them itself, for one line (everywhere)

A line on standard input is a JSON object, {"verdicts": FILE, "tests": [NAME, ...]}. The forking process answers each
with {"verdicts": FILE, "status": EXIT STATUS} when the run has ended; a line that comes earlier kills the run. The end
of the input ends everything.

The student's files are imported after the line has come: until then `adapters` is an empty module. Nor does anything
compute with torch before a fork: the child would wait for threads that it did not inherit.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

# Imported for nothing but time: the tests, or what students write, would import them in every run.
import beartype  # noqa: F401
import einops  # noqa: F401
import pytest
import torch
import torch.fx.experimental.symbolic_shapes

from cs336_kit.engine.failure import describe
from cs336_kit.plugin import Diagnosis, VerdictWriter, read_cases


class Warm:
    """The pytest plugin that waits between the collection and the tests."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.lines = lines
        self.adapters = ModuleType("adapters")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        sys.modules["adapters"] = self.adapters

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, None, None]:
        """Wait for a line, let pytest run the tests that it names, and end without pytest's summary."""
        if session.testsfailed:
            os._exit(1)  # the tests themselves cannot be imported
        read_cases(session.items)
        gc.collect()
        gc.freeze()  # a fork need not look through what it inherits
        line = next(self.lines, None)
        if line is None:
            os._exit(0)
        diagnosis = session.config.pluginmanager.get_plugin("diagnosis")
        assert isinstance(diagnosis, Diagnosis)
        command = json.loads(line)
        verdicts = VerdictWriter(Path(command["verdicts"]), diagnosis)
        self._prepare(session, command["tests"], verdicts)
        yield
        diagnosis.pytest_sessionfinish(session)
        verdicts.pytest_sessionfinish()
        os._exit(0)  # torch would take its time to go

    def _prepare(self, session: pytest.Session, tests: list[str], verdicts: VerdictWriter) -> None:
        session.config.pluginmanager.register(verdicts)
        session.items[:] = [item for item in session.items if item.name.partition("[")[0] in tests]
        try:
            importlib.invalidate_caches()
            importlib.reload(self.adapters)
        except BaseException as error:  # exit() among them
            verdicts.broken(describe(error, None, None, session.config.rootpath, ("adapters.py", 1)))
            session.items.clear()
        else:
            verdicts.pytest_collection_finish(session)


def forks(commands: BinaryIO, replies: BinaryIO) -> Iterator[bytes]:
    """Fork for each line: the child gets the line, the parent stays here until the input ends."""
    while line := commands.readline():
        child = os.fork()
        if child == 0:
            commands.close()
            replies.close()
            yield line
            return
        os.setpgid(child, child)
        ended = os.pidfd_open(child)
        select.select([commands, ended], [], [])
        os.killpg(child, signal.SIGKILL)  # with whatever it has started; one that has ended keeps its exit status
        _, status = os.waitpid(child, 0)
        os.close(ended)
        reply = {"verdicts": json.loads(line)["verdicts"], "status": os.waitstatus_to_exitcode(status)}
        replies.write(json.dumps(reply).encode() + b"\n")


def once(commands: BinaryIO) -> Iterator[bytes]:
    """One line. From then on a thread waits for the end of the input, to end the process whatever it is doing."""

    def wait() -> None:
        commands.read()
        os._exit(1)

    if line := commands.readline():
        threading.Thread(target=wait, daemon=True).start()
        yield line


def main() -> None:
    """Wait for lines on what standard input was; student code finds nothing to read there."""
    sys.dont_write_bytecode = True  # Python takes two saves in one second for the same file, if their sizes are equal
    torch.set_num_threads(1)  # the cases are small: threads cost more than they give
    commands, replies = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    lines = forks(commands, replies) if sys.argv[1] == "fork" else once(commands)
    options = ["--quiet", "--tb=no", "-p", "no:cacheprovider", "-p", "no:logging", "tests"]
    sys.exit(pytest.main(options, plugins=[Warm(lines)]))


if __name__ == "__main__":
    main()

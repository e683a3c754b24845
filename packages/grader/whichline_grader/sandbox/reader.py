"""Take in each submission in a process of its own, within limits: a file of 2 KB can be made to take days to read.

`python -m whichline_grader.sandbox.reader DESCRIPTOR` is a small process without torch, started once, that forks for
each submission; a fork of the command, which has torch, takes several times as long.
"""

import gc
import hashlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from whichline.engine.assignment import this_assignment, this_root
from whichline_grader.sandbox.submission import MIB, Refused, Submission, content_of_refused, take_in, tell_instead

SECONDS, MEMORY_BYTES = 2, 1024 * MIB  # of the processor, and of private memory, for one submission


class Reader:
    """Takes in submissions, one at a time."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "whichline_grader.sandbox.reader", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, cwd=this_root(), pass_fds=[theirs.fileno()])

    def take_in(self, path: Path, files: Mapping[str, Path] | None = None) -> Submission:
        """Take in what lies at an absolute `path`, as `take_in` does.

        Raises:
            Refused: also if it takes too much time or memory to read; it has the `content`.
            OSError: it could not be read, and not by its own doing.
        """
        self._pipe.send((path, files))
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise OSError("the process that reads submissions has ended; run the same command to go on") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.wait()


def main(requests: Connection) -> None:
    """Answer what is asked, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes its end
    this_assignment()  # is read here, and so in no fork
    gc.freeze()  # a fork that collects garbage copies every page that it looks at
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            path, files = requests.recv()
            answer, theirs = Pipe(duplex=False)
            if (pid := os.fork()) == 0:
                _answer_and_exit(theirs, path, files)
            theirs.close()
            with answer:
                try:
                    said = answer.recv_bytes()
                except (EOFError, OSError):  # it was killed before it had said all
                    said = None
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if said is not None:
                requests.send_bytes(said)
            elif status == -signal.SIGXCPU:
                requests.send(_too_much(f"{SECONDS} s of processor time"))
            else:
                requests.send(OSError(f"the process that read it ended with exit status {status}"))


def _answer_and_exit(pipe: Connection, path: Path, files: Mapping[str, Path] | None) -> NoReturn:
    """In the fork."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = _read(path, files)
    except MemoryError:
        answer = _too_much(f"{MEMORY_BYTES // MIB} MiB of memory")
    except OSError as error:
        answer = error
    except Exception as error:
        answer = OSError(f"{type(error).__name__}: {error}")
    try:
        pipe.send(answer)
    finally:
        os._exit(0)


def _read(path: Path, files: Mapping[str, Path] | None) -> Submission | Refused:
    """The submission, with all that is computed from the whole of it."""
    try:
        taken = take_in(path, files)
    except Refused as refused:
        refused.content = content_of_refused(files.values() if files else [path])
        return refused
    _ = taken.sha256, taken.slow_imports
    return taken


def _too_much(what: str) -> Refused:
    refused = Refused(f"it took more than {what} to read; {tell_instead()}")
    refused.content = hashlib.sha256(what.encode()).hexdigest()  # to read it again for that would take as much
    return refused


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))

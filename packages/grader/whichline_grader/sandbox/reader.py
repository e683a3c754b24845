"""Take in each submission in a process of its own, within limits: a file of 2 KB can be made to take days to read.

`python -m whichline_grader.sandbox.reader DESCRIPTOR` is a small process without torch, started once, that forks for
each submission; a fork of the command, which has torch, takes several times as long. The fork is confined before it
reads: to the system calls of a worker and, where the kernel has Landlock, to what was handed in and the assignment. It
answers in JSON, and whoever has taken it over can say no more than that something else was handed in.
"""

import gc
import hashlib
import os
import resource
import select
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec

from whichline.engine.assignment import this_assignment, this_root
from whichline_grader.sandbox.files import MAX_SOURCE_BYTES, MIB, Refused, describe_instead
from whichline_grader.sandbox.inside.lock_in import Filter, confine
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.submission import SLOW_IMPORTS, Submission, content_of_refused, take_in

SECONDS, MEMORY_BYTES = 2, 1024 * MIB  # of the processor, and of private memory, for one submission
CLOCK_SECONDS = 60.0  # on the clock, on a busy machine and a slow disk; what takes longer is not the submission's fault
MOST_BYTES = 2 * MAX_SOURCE_BYTES  # of an answer, in which sources take four thirds of their bytes


class Taken(msgspec.Struct):
    """A submission, as `Submission` has it, with what is computed from the whole of it."""

    files: dict[str, bytes]
    adapters: str
    remarks: tuple[str, ...]
    slow_imports: list[str]


class Answer(msgspec.Struct):
    """The answer to one request: what was taken in, or why it is `refused`, or why it cannot be read."""

    taken: Taken | None = None
    refused: str = ""
    content: str = ""
    error: str = ""


class Reader:
    """Takes in submissions, one at a time."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "whichline_grader.sandbox.reader", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, cwd=this_root(), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )

    def take_in(self, path: Path, files: Mapping[str, Path] | None = None) -> Submission:
        """Take in what lies at an absolute `path`, as `take_in` does.

        Raises:
            Refused: also if it takes too much time or memory to read; it has the `content`.
            OSError: it could not be read, and not by its own doing.
        """
        return ask(self._pipe, path, files)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.wait()


def ask(pipe: Connection, path: Path, files: Mapping[str, Path] | None = None) -> Submission:
    """Ask whoever answers at the other end, as `Reader.take_in` says."""
    pipe.send((path, files))
    try:
        answer = msgspec.json.decode(pipe.recv_bytes(), type=Answer)
    except EOFError:
        raise OSError("the process that reads submissions has ended; run the same command to go on") from None
    except (ValueError, RecursionError) as error:
        raise OSError(f"the process that reads submissions gave no answer that can be read: {error}") from None
    if answer.refused:
        refused = Refused(printable(answer.refused))
        refused.content = answer.content
        raise refused
    if answer.taken is None:
        raise OSError(printable(answer.error))
    taken = Submission(path.resolve().name, answer.taken.files, answer.taken.adapters, answer.taken.remarks)
    vars(taken)["slow_imports"] = [each for each in answer.taken.slow_imports if each in SLOW_IMPORTS]
    return taken


def main(requests: Connection) -> None:
    """Answer what is asked, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes its end
    this_assignment()  # is read here, and so in no fork
    seccomp = None
    with suppress(OSError):  # without libseccomp there is no sandbox either, but `none`
        seccomp = Filter()
    gc.freeze()  # a fork that collects garbage copies every page that it looks at
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            path, files = requests.recv()
            pipe, theirs = os.pipe()
            if (pid := os.fork()) == 0:
                _answer_and_exit(theirs, path, files, seccomp)
            os.close(theirs)
            said = _hear(pipe)
            os.close(pipe)
            os.kill(pid, signal.SIGKILL)  # if it has not ended
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            requests.send_bytes(said if status == 0 else msgspec.json.encode(_explain(status)))


def _hear(pipe: int) -> bytes:
    """Take what a fork says until it ends, for so long and no more than an answer may have."""
    said, end = bytearray(), time.monotonic() + CLOCK_SECONDS
    while len(said) <= MOST_BYTES and select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
        if not (piece := os.read(pipe, MIB)):
            break
        said += piece
    return bytes(said)


def _explain(status: int) -> Answer:
    """Say why a fork has said nothing, or not all."""
    if status == -signal.SIGXCPU:
        return _too_much(f"{SECONDS} s of processor time")
    if status == -signal.SIGKILL:
        return Answer(error=f"it was not read within {CLOCK_SECONDS:g} s on the clock")
    return Answer(error=f"the process that read it ended with exit status {status}")


def _answer_and_exit(pipe: int, path: Path, files: Mapping[str, Path] | None, seccomp: Filter | None) -> NoReturn:
    """In the fork."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if seccomp:
            readable = [path, *(files or {}).values(), this_root(), Path(sysconfig.get_path("stdlib"))]
            confine([str(each) for each in readable if each.exists()], seccomp)
        said = _read(path, files)
        with open(pipe, "wb", closefd=False) as file:
            file.write(said)
    finally:
        os._exit(0)


def _read(path: Path, files: Mapping[str, Path] | None) -> bytes:
    """The answer, in JSON."""
    try:
        taken = take_in(path, files)
        answer = Answer(Taken(taken.files, taken.adapters, taken.remarks, taken.slow_imports))
    except Refused as refused:
        answer = Answer(refused=str(refused), content=content_of_refused(files.values() if files else [path]))
    except MemoryError:
        answer = _too_much(f"{MEMORY_BYTES // MIB} MiB of memory")
    except OSError as error:
        answer = Answer(error=str(error))
    except Exception as error:
        answer = Answer(error=f"{type(error).__name__}: {error}")
    return msgspec.json.encode(answer)


def _too_much(what: str) -> Answer:
    content = hashlib.sha256(what.encode()).hexdigest()  # to read it again for that would take as much
    return Answer(refused=f"it took more than {what} to read; {describe_instead()}", content=content)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))

"""Read each submission in a process of its own, within limits: a file of 2 KB can be made to take days to read.

`python -m whichline_grader.sandbox.reader DESCRIPTOR` is a small process without torch. It is started once and forks
for each submission; a fork of the command, which holds torch, takes several times as long. The fork confines itself
before it reads: to a worker's system calls and, with Landlock, to the submission and the assignment. It replies in
JSON, so an attacker who takes it over can only claim that something else was handed in.
"""

import gc
import hashlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec

from whichline.engine.assignment import get_assignment, get_root
from whichline_grader.sandbox.files import MAX_SOURCE_BYTES, MIB, Refused, describe_instead
from whichline_grader.sandbox.inside.lock_in import Filter, confine
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.submission import SLOW_IMPORTS, Submission, hash_refused, take_in

SECONDS, MEMORY_BYTES = 2, 1024 * MIB  # of the processor, and of private memory, for one submission
CLOCK_SECONDS = 60.0  # on the clock; beyond that the machine or the disk is to blame, not the submission
MOST_BYTES = 2 * MAX_SOURCE_BYTES  # of an answer; in JSON, sources grow by a third


class Reply(msgspec.Struct):
    """The answer to one request: the submission with its slow imports, why it is `refused`, or the `error`."""

    taken: Submission | None = None
    slow_imports: list[str] = []
    refused: str = ""
    content: str = ""
    error: str = ""


class Reader(AbstractContextManager["Reader"]):
    """Reads submissions, one at a time."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        args = [sys.executable, "-m", "whichline_grader.sandbox.reader", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(args, cwd=get_root(), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def take_in(self, path: Path, files: Mapping[str, Path] | None = None) -> Submission:
        """Read the submission at an absolute `path`, as `take_in` does, or refuse what takes too much time or memory.

        OSError if it could not be read, through no fault of its own.
        """
        return ask(self._pipe, path, files)

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.wait()


def ask(pipe: Connection, path: Path, files: Mapping[str, Path] | None = None) -> Submission:
    """Have the process at the other end read a submission; see `Reader.take_in`."""
    pipe.send((path, files))
    try:
        answer = msgspec.convert(json.loads(pipe.recv_bytes()), Reply)
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
    taken = replace(answer.taken, name=path.resolve().name)
    vars(taken)["slow_imports"] = [each for each in answer.slow_imports if each in SLOW_IMPORTS]
    return taken


def main(requests: Connection) -> None:
    """Answer requests until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes its end
    get_assignment()  # cached before the forks
    seccomp = None
    with suppress(OSError):  # without libseccomp the only sandbox is `none`
        seccomp = Filter()
    gc.freeze()  # a collection in a fork would copy every page that it visits
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            path, files = requests.recv()
            pipe, theirs = os.pipe()
            if (pid := os.fork()) == 0:
                _answer_and_exit(theirs, path, files, seccomp)
            os.close(theirs)
            answer = _receive(pipe)
            os.close(pipe)
            os.kill(pid, signal.SIGKILL)  # unless it has ended
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            requests.send_bytes(answer if status == 0 else _encode(_explain(status)))


def _receive(pipe: int) -> bytes:
    """Receive the answer of a fork, within the limits on time and size."""
    answer, end = bytearray(), time.monotonic() + CLOCK_SECONDS
    while len(answer) <= MOST_BYTES and select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
        if not (piece := os.read(pipe, MIB)):
            break
        answer += piece
    return bytes(answer)


def _explain(status: int) -> Reply:
    if status == -signal.SIGXCPU:
        return _refuse_cost(f"{SECONDS} s of processor time")
    if status == -signal.SIGKILL:
        return Reply(error=f"it was not read within {CLOCK_SECONDS:g} s on the clock")
    return Reply(error=f"the process that read it ended with exit status {status}")


def _answer_and_exit(pipe: int, path: Path, files: Mapping[str, Path] | None, seccomp: Filter | None) -> NoReturn:
    """Confine this fork, read the submission, send the answer and exit."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = 1
    try:
        if seccomp:
            readable = [path, *(files or {}).values(), get_root(), Path(sysconfig.get_path("stdlib"))]
            confine([str(each) for each in readable if each.exists()], seccomp)
        with open(pipe, "wb", closefd=False) as file:
            file.write(_read(path, files))
        status = 0
    finally:
        os._exit(status)


def _read(path: Path, files: Mapping[str, Path] | None) -> bytes:
    """Read a submission; return the answer as JSON."""
    try:
        taken = take_in(path, files)
        answer = Reply(taken, taken.slow_imports)
    except Refused as refused:
        answer = Reply(refused=str(refused), content=hash_refused(files.values() if files else [path]))
    except MemoryError:
        answer = _refuse_cost(f"{MEMORY_BYTES // MIB} MiB of memory")
    except OSError as error:
        answer = Reply(error=str(error))
    except Exception as error:
        answer = Reply(error=f"{type(error).__name__}: {error}")
    return _encode(answer)


def _encode(answer: Reply) -> bytes:
    """The answer as JSON; a name that is no text cannot be written as msgspec writes it."""
    return json.dumps(msgspec.to_builtins(answer)).encode()


def _refuse_cost(what: str) -> Reply:
    content = hashlib.sha256(what.encode()).hexdigest()  # hashing the files would cost as much again
    return Reply(refused=f"it took more than {what} to read; {describe_instead()}", content=content)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))

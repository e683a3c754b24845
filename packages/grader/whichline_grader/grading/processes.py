"""The process that grades: it holds the collected suite, has no threads, and forks for each submission.

It is a fork of the command, and any number of threads may ask it at the same time. This module does without torch,
which the sandbox imports at the same time as the suite does.
"""

import gc
import json
import multiprocessing
import os
import pickle
import re
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from whichline.engine.errors import CourseworkError
from whichline.engine.result import Result, result_from_json
from whichline_grader.grading.graded import Notes, notes_from_json
from whichline_grader.sandbox.confinement import (
    Layer,
    Process,
    Sandbox,
    SandboxError,
    SandboxReport,
    Starting,
    begin,
    finish,
)
from whichline_grader.sandbox.inside.lock_in import prepare_fork
from whichline_grader.sandbox.submission import Submission

if TYPE_CHECKING:
    from whichline_grader.grading.suite import GradedSuite

SECONDS, BYTES = 120, 4 << 30  # processor time and private memory of this side for one submission
ANSWERS = "answers"  # the folder of what submissions have answered, beside the gradebook


@contextmanager
def load_and_start(
    root: Path, layer: Layer | Literal["auto"] | None = "auto", only: str | None = None
) -> Iterator[tuple["GradedSuite", Sandbox]]:
    """The suite, or `only` a part of it, loaded while the sandbox starts: each takes seconds.

    Without a `layer` there is no sandbox, and no code of a submission can run.

    Raises:
        SuiteError, SandboxError: one of them cannot be had.
    """
    with ExitStack() as stack:
        stack.callback(gc.unfreeze)
        starting = begin(layer, advised=True) if layer else _begin_nothing()
        next(starting)  # before this process is busy
        with ThreadPoolExecutor(1) as beside:  # it ends here: threads do not survive the fork of each submission
            started = beside.submit(lambda: stack.enter_context(finish(starting)))
            gc.disable()  # all of this stays, and looking for garbage in it would take half a second
            try:
                from whichline_grader.grading.suite import load_graded_suite

                suite = load_graded_suite(root, only)
            finally:
                gc.freeze()
                gc.enable()
        yield suite, started.result()


def _begin_nothing() -> Starting:
    yield
    return NoSandbox()


class NoSandbox(Sandbox):
    """A sandbox that gives no worker: submissions are judged by stored answers."""

    def __init__(self) -> None:
        self.achieved, self.advisor = SandboxReport("none", ()), None

    def fork(self, *_: object, **__: object) -> Process:
        raise SandboxError("its answers do not hold all that it is asked; `grade` without --answers asks it here")

    def check(self) -> None: ...

    def close(self) -> None: ...


class HostError(CourseworkError):
    """The process that grades has ended, or gives no more workers."""


@dataclass(frozen=True)
class Record:
    """One submission, graded or not.

    Attributes:
        results: one for each test.
        notes: what else the report says.
        fault: why it was not graded, and not by its own doing.
        layer: the sandbox that it answered in.
        started: when, with the offset from UTC.
        seconds: how long it took.
        sealed: what it has answered, as `Sealed.as_bytes` writes it.
        workers: how many processes answered for it now.
    """

    results: Sequence[Result] = ()
    notes: Notes = field(default_factory=Notes)
    fault: str = ""
    layer: str = "not run"
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    sealed: bytes = b""
    workers: int = 0


Submit = Callable[[Submission, bytes], Future[Record]]  # with what it has answered before, if that is known


class Host:
    """The other process, seen from this side."""

    def __init__(self, control: socket.socket, wait: Callable[[], object]) -> None:
        """Take over a process that serves `control`; `wait` returns when it has ended."""
        self._control, self._wait = control, wait

    def grade(self, submission: Submission, sealed: bytes = b"") -> Record:
        """Grade it in a fork of that process, which is given a new sandbox if this fails because it needs one.

        What is `sealed` is not asked again, where it answers the questions of the suite that is held there.

        Raises:
            HostError: the process has ended, or gets no sandbox.
        """
        started, clock = datetime.now(UTC), time.monotonic()
        # First what the fork has said, cut off if it was killed; in the last line how it ended.
        said, left = self._ask(b"grade", pickle.dumps((submission, sealed)))
        said, _, status = said.rpartition(b"\n")
        record = partial(Record, started=started, seconds=time.monotonic() - clock)
        if status != b"0":
            fault = f"the grading process ended with exit status {status.decode()}"
        elif not (fault := (line := json.loads(said)).get("fault", "")):
            found = [*map(result_from_json, line["results"])], notes_from_json(line["notes"])
            return record(*found, sealed=left, layer=line["layer"], workers=line["workers"])
        if trouble := self._ask(b"check")[0].removesuffix(b"\n0"):
            raise HostError(trouble.decode())
        return record(fault=fault)

    def close(self) -> None:
        """End the process and all its forks; whoever waits for one gets a HostError."""
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._wait()

    def _ask(self, what: bytes, data: bytes = b"") -> tuple[bytes, bytes]:
        """Send a message as one piece, with a file and a pipe to write to.

        Returns:
            what came through the pipe, which ends with a status, and what is in the file then.
        """
        read, write = os.pipe()
        with open(read, "rb") as answer, open(os.memfd_create("submission"), "w+b") as file:
            try:
                file.write(data)
                file.flush()
                socket.send_fds(self._control, [what], [file.fileno(), write])
            except OSError:
                pass  # there will be no answer
            finally:
                os.close(write)
            said = answer.read()
            file.seek(0)
            left = file.read()
        if re.search(rb"\n-?\d+\Z", said) is None:
            raise HostError("the process that holds the suite has ended; run the same command to go on")
        return said, left


@contextmanager
def grade_here(suite: "GradedSuite", sandbox: Sandbox, jobs: int) -> Iterator[Submit]:
    """Have `jobs` submissions graded at a time.

    The process that forks is a fork of this one, which must not have threads yet; it may have them from then on.
    """
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def serve_apart() -> None:
        control.close()  # else it would not see that this side has ended
        serve(theirs, suite, sandbox)

    process = multiprocessing.get_context("fork").Process(target=serve_apart)
    process.start()
    theirs.close()
    # It ends before the threads are waited for.
    with ThreadPoolExecutor(jobs) as executor, closing(Host(control, process.join)) as host:
        yield partial(executor.submit, host.grade)


# In that process.


def serve(control: socket.socket, suite: "GradedSuite", sandbox: Sandbox) -> None:
    """Do what the messages on `control` ask for, until its other end is closed; then kill all forks.

    A message is `grade` or `check`, with a file, which has the submission, and a pipe for the answer.
    """
    import whichline_grader.grading.one_submission  # noqa: F401 (here, and so in no fork)

    _ = [question.packed for each in suite.questions.values() for question in each]  # the same
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes `control`
    gc.collect()
    gc.freeze()  # a fork that collects garbage copies every page that it looks at
    forks: dict[int, tuple[int, int]] = {}  # by a descriptor of the process: its id, and the pipe that it writes to
    while True:
        for readable in select.select([control.fileno(), *forks], [], [])[0]:
            if readable in forks:
                pid, pipe = forks.pop(readable)
                os.close(readable)
                _write(pipe, f"\n{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 16, 2)
            if not message:
                for pid, _ in forks.values():
                    os.kill(pid, signal.SIGKILL)
                return
            file, pipe = descriptors
            prepare_fork()
            if message == b"check":
                _write(pipe, f"{_restart_if_needed(sandbox)}\n0")
            elif (pid := os.fork()) == 0:
                # Whoever held the pipe of another fork would keep the one who reads it waiting.
                for descriptor in (control.fileno(), *forks, *(other for _, other in forks.values())):
                    os.close(descriptor)
                _grade_and_exit(suite, sandbox, file, pipe)
            else:
                forks[os.pidfd_open(pid)] = pid, pipe
            os.close(file)


def _grade_and_exit(suite: "GradedSuite", sandbox: Sandbox, file: int, pipe: int) -> None:
    """In the fork, which reads and compares what a submission wrote: it has limits, too."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    from whichline_grader.grading.one_submission import Faulty, grade_one
    from whichline_grader.grading.questions import read_sealed

    try:
        with open(file, "r+b", closefd=False) as given:
            given.seek(0)
            submission, record = pickle.load(given)  # noqa: S301 (the course's own)
            provenance = suite.provenance_of(submission.sha256)
            known = read_sealed(record, suite.questions, provenance) if record else None
            results, notes, sealed = grade_one(suite, sandbox, submission, known)
            given.seek(0)
            given.truncate()
            record = sealed.as_bytes(provenance)
            given.write(record if len(record) <= suite.record_bytes else b"")  # without one it is asked again
        told = [result.as_json() for result in results]
        line = {"results": told, "notes": notes.as_json(), "layer": sealed.layer, "workers": sealed.workers}
    except Faulty as error:
        line = {"fault": str(error)}
    except BaseException as error:
        line = {"fault": f"{type(error).__name__}: {error}"}
    try:
        _write(pipe, json.dumps(line, ensure_ascii=False))
    finally:
        os._exit(0)


def _write(pipe: int, text: str) -> None:
    # Half a character is no text, and no database takes it. Nobody reads the pipe when the command has been killed.
    with suppress(BrokenPipeError), open(pipe, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


def _restart_if_needed(sandbox: Sandbox) -> str:
    """Start the sandbox again if it gives no workers; why that cannot be done."""
    try:
        try:
            sandbox.check()
        except SandboxError:
            sandbox.restart()
    except SandboxError as error:
        return str(error)
    return ""

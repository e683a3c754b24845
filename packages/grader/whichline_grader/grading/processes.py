"""The suite, loaded while the sandbox starts, and a fork of this process for each submission.

This module does without torch, which the sandbox imports at the same time as the suite does.
"""

import gc
import json
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from whichline.engine.result import Result, result_from_json
from whichline_grader.grading.graded import Notes, read_notes
from whichline_grader.sandbox import confinement
from whichline_grader.sandbox.confinement import Layer, Sandbox, SandboxError
from whichline_grader.sandbox.inside.lock_in import end_with_parent, prepare_fork
from whichline_grader.sandbox.submission import Submission

if TYPE_CHECKING:
    from whichline_grader.grading.suite import GradedSuite

SECONDS, BYTES = 120, 4 << 30  # processor time and private memory of this side for one submission
ANSWERS = "answers"  # the folder of what submissions have answered, beside the gradebook
FORK = get_context("fork")


@contextmanager
def load_and_start(
    root: Path, layer: Layer | Literal["auto"] | None = "auto", only: str | None = None
) -> Iterator[tuple["GradedSuite", Sandbox]]:
    """Load the suite, or `only` a part of it, while the sandbox starts: each takes seconds.

    Without a `layer` there is no sandbox, and no code of a submission can run. SuiteError or SandboxError if one of
    them cannot be had.
    """
    with ExitStack() as stack:
        stack.callback(gc.unfreeze)
        starting = confinement.begin(layer, diagnosing=True) if layer else _begin_nothing()
        next(starting)  # before this process is busy
        with ThreadPoolExecutor(1) as beside:  # it ends here: threads do not survive the fork of each submission
            started = beside.submit(lambda: stack.enter_context(confinement.finish(starting)))
            gc.disable()  # all of this stays, and looking for garbage in it would take half a second
            try:
                from whichline_grader.grading.suite import load_graded_suite

                suite = load_graded_suite(root, only)
            finally:
                gc.freeze()
                gc.enable()
        yield suite, started.result()


def _begin_nothing() -> confinement.Starting:
    yield
    return NoSandbox()


class NoSandbox(Sandbox):
    """A sandbox that gives no worker: submissions are judged by stored answers."""

    def __init__(self) -> None:
        self.achieved, self.diagnosis = confinement.SandboxReport("none", ()), None

    def fork(self, *_: object, **__: object) -> confinement.Process:
        raise SandboxError("its answers do not hold all that it is asked; `grade` without --answers asks it here")

    def check(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Record:
    """One submission, graded or not."""

    results: Sequence[Result] = ()  # one for each test
    notes: Notes = field(default_factory=Notes)  # what else the report says
    fault: str = ""  # why it was not graded, and not by its own doing
    layer: str = "not run"  # the sandbox that it answered in
    started: datetime = field(default_factory=lambda: datetime.now(UTC))  # when, with the offset from UTC
    seconds: float = 0.0  # how long it took
    transcript: bytes = b""  # what it has answered, as `Transcript.as_bytes` writes it
    workers: int = 0  # how many processes answered for it now


class _Fork(NamedTuple):
    name: str
    process: BaseProcess
    started: datetime


class Forks:
    """Grades submissions, each in a fork of this process, which must have no threads."""

    def __init__(self, suite: "GradedSuite", sandbox: Sandbox) -> None:
        import whichline_grader.grading.one_submission  # noqa: F401 (here, and so in no fork)

        self._suite, self._sandbox = suite, sandbox
        self._running: dict[connection.Connection, _Fork] = {}
        _ = [remote_call.packed for each in suite.remote_calls.values() for remote_call in each]  # the same
        gc.collect()
        gc.freeze()  # a fork that collects garbage copies every page that it looks at

    def start(self, name: str, submission: Submission, transcript: bytes) -> None:
        """Begin to grade a submission, and ask nothing again that is in its `transcript`, if that is of this suite."""
        pipe, theirs = connection.Pipe(duplex=False)
        prepare_fork()
        arguments = (self._suite, self._sandbox, submission, transcript, theirs)
        process = FORK.Process(target=_grade_and_exit, args=arguments)
        process.start()
        theirs.close()
        self._running[pipe] = _Fork(name, process, datetime.now(UTC))

    def wait(self, seconds: float) -> Iterator[tuple[str, Record]]:
        """Give the name and the record of each submission that ends within some seconds; SandboxError if none can."""
        for pipe in connection.wait([*self._running], seconds):
            assert isinstance(pipe, connection.Connection)
            fork = self._running.pop(pipe)
            with pipe:
                try:
                    record = _receive(pipe, fork)
                except Exception as error:  # as when a record cannot be read
                    record = Record(fault=f"{type(error).__name__}: {error}")
            if record.fault:
                try:
                    self._sandbox.check()
                except SandboxError:
                    self._sandbox.restart()
            yield fork.name, record

    def close(self) -> None:
        """Kill whatever is running."""
        for fork in self._running.values():
            fork.process.kill()
            fork.process.join()


def _receive(pipe: connection.Connection, fork: _Fork) -> Record:
    record = partial(Record, started=fork.started, seconds=(datetime.now(UTC) - fork.started).total_seconds())
    try:
        said, transcript = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
    except (EOFError, OSError):  # it was killed
        fork.process.join()
        return record(fault=f"the grading process ended with exit status {fork.process.exitcode}")
    fork.process.join()
    if "fault" in said:
        return record(fault=said["fault"])
    results, notes = [*map(result_from_json, said["results"])], read_notes(said["notes"])
    return record(results, notes, transcript=transcript, layer=said["layer"], workers=said["workers"])


def _grade_and_exit(
    suite: "GradedSuite", sandbox: Sandbox, submission: Submission, record: bytes, pipe: connection.Connection
) -> NoReturn:
    """In the fork, which reads and compares what a submission wrote: it has limits, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which kills its forks
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    from whichline_grader.grading.one_submission import Faulty, grade_one
    from whichline_grader.grading.transcripts import read_transcript

    try:
        provenance = suite.compute_provenance(submission.sha256)
        known = read_transcript(record, suite.remote_calls, provenance) if record else None
        results, notes, transcript = grade_one(suite, sandbox, submission, known)
        record = transcript.as_bytes(provenance)
        record = record if len(record) <= suite.record_bytes else b""  # without one it is asked again
        told = [result.as_json() for result in results]
        said = {"results": told, "notes": asdict(notes), "layer": transcript.layer, "workers": transcript.workers}
    except Faulty as error:
        said = {"fault": str(error)}
    except BaseException as error:
        said = {"fault": f"{type(error).__name__}: {error}"}
    try:
        # Half a character is no text, and no database takes it.
        pipe.send_bytes(json.dumps(said, ensure_ascii=False).encode(errors="replace"))
        pipe.send_bytes(record)
    finally:
        os._exit(0)

"""Ask one submission questions, one after the other, and hold its workers to their limits.

A reply must repeat its question's token, and the next question goes out after it. So a submission sees no question
early, and cannot answer one question with the reply to another. If a question ends the worker, hangs or floods it, that
is its answer, and the next question goes to a fresh worker.
"""

import math
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.connection import Connection, TooLongError
from whichline_grader.sandbox.inside.frames import FrameError, encode, pack
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.own_time import OwnTime
from whichline_grader.sandbox.printable import hide_paths, printable
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import (
    LimitExceeded,
    NotAsked,
    ProtocolViolation,
    Reply,
    TimedOut,
    WorkerDied,
    WorkerStopped,
    check,
)
from whichline_grader.sandbox.submission import Submission

SAMPLE_SECONDS = 0.01
PAUSE_SECONDS = 0.001  # in a long call: otherwise a reply sent byte by byte would cost this side as much as the worker
MOST_FUNCTIONS = 50  # that take all of their time; the kernel ends a worker that has used more
TIMEOUTS = 2  # after so many calls without an answer, each call gets less time
LAST_WORDS = b"Fatal Python error: "  # on stderr
# The limit on all replies of a submission, which are kept until its tests have run. A parsed header takes many times
# its bytes.
ANSWERS_BYTES, HEADER_TIMES = 256 << 20, 16
# The kernel reports a wait in the run queue when it is over: until then it looks like sleep.
SETTLING_SECONDS = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


class Starved(BaseException):
    """The machine is too busy to judge a worker: our fault, and never a grade.

    It is neither an Exception nor a `Stopped`: tests turn those into outcomes.
    """


@dataclass
class Spent:
    """The time that one submission has used for each function, and its workers, in all its interviews."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    workers: int = 0


class StandIn(Protocol):
    """Answers the calls that a submission makes to its own functions for earlier problems.

    Each of the `lessons` shows a worker one of these functions by a call, and names its arguments; nothing is answered
    for one that is dropped, or during a lesson. `reply` gives None if `raw` is the answer to the question.
    """

    lessons: Sequence[tuple[RemoteCall, Sequence[str]]]

    def drop(self, lesson: tuple[RemoteCall, Sequence[str]]) -> None: ...
    def begin(self, remote_call: RemoteCall, token: str) -> None: ...
    def reply(self, raw: tuple[bytes, bytes], token: str) -> bytes | None: ...


class Interview(AbstractContextManager["Interview"]):
    """One submission and its current worker, within limits, after what it has `spent` before."""

    def __init__(
        self,
        sandbox: Sandbox,
        submission: Submission,
        limits: Limits | None = None,
        lender: StandIn | None = None,
        spent: Spent | None = None,
    ) -> None:
        self.submission, self.limits, self._lender = submission, limits or Limits(), lender
        self.spent = spent or Spent()
        self.imported: Reply | None = None  # the reply to the first import, after the first question
        self._failed_import: Reply | None = None
        self._sandbox = sandbox
        self._connection: Connection | None = None
        self._bytes = 0  # of all replies so far
        self._for = ""  # the function that is asked for, which pays for imports and lessons, too
        self._timed_out: Counter[str] = Counter()
        self._bytes_left = {"stdout": self.limits.output_bytes, "stderr": self.limits.output_bytes}

    def ask(self, remote_call: RemoteCall, values: Sequence[object] = ()) -> Reply:
        """Ask a question; the answer says what happened, whatever the submission does.

        The `values` are those of earlier answers in the same test. SandboxError if the sandbox has stopped working,
        Starved if the machine is too busy.
        """
        token = secrets.token_hex(8)
        try:
            frame, tensors = remote_call.frame(remote_call.fill_in(values), token=token)
        except (LookupError, TypeError, FrameError) as error:
            why = f"{remote_call.call} is not called with what the call before it gave: {error}"
            return Reply(stopped=NotAsked(why))
        if stopped := self._find_obstacle(remote_call.call):
            return Reply(stopped=stopped)
        if self._lender:
            self._lender.begin(remote_call, token)
        if not remote_call.memory:
            return self._answer(remote_call.call, frame, token, tensors)
        self.end_worker()
        try:
            return self._answer(remote_call.call, frame, token, tensors, remote_call.memory)
        finally:
            self.end_worker()

    def ask_for(self, what: str, *arguments: object) -> Reply:
        """Send a request that is not a call of an adapter to a worker that understands it."""
        token, tensors = secrets.token_hex(8), list[Tensor]()
        encoded = [encode(each, tensors) for each in arguments]
        return self._answer(what, pack({"call": what, "arguments": encoded, "token": token}, tensors), token, [])

    def end_worker(self) -> None:
        """Kill the worker, and wait until nothing of it is left; the next question goes to a fresh one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.process.kill()

    def __exit__(self, *_: object) -> None:
        self.end_worker()

    def _find_obstacle(self, call: str) -> WorkerStopped | None:
        """Say why an adapter must not be called; None if it may."""
        if self._timed_out[call] and self._timed_out.total() >= TIMEOUTS:
            return TimedOut(f"{call} is not called again, since it gave no answer in its time")
        if self.spent.seconds[call] > self.limits.seconds:
            return TimedOut(f"{call} has used the {self.limits.seconds:g} s that all its calls may take")
        if self._bytes > ANSWERS_BYTES:
            why = "all answers together are larger than they can need to be"
            return LimitExceeded(f"{call} is not called again: {why}")
        return None

    def _answer(self, what: str, frame: bytes, token: str, tensors: list[Tensor], memory: int = 0) -> Reply:
        """Ask the current worker, or a fresh one, which imports the submission first."""
        self._for, failed, connection = what, self._failed_import, self._connection
        if connection is None and not failed:
            connection, imported = self._start(memory or self.limits.memory_bytes)
            failed = imported if imported.is_failed else None
            if not memory:  # an import that fails for lack of memory may succeed with more
                # Only the first import is shown: what a later one prints or raises may reveal a hidden input.
                self.imported, self._failed_import = self.imported or imported, failed
        if failed or connection is None:
            self.end_worker()
            return replace(failed or Reply(), printed=("", ""))
        return self._send(connection, what, frame, token, tensors)

    def _start(self, data_bytes: int) -> tuple[Connection, Reply]:
        cpu_seconds, modules = math.ceil(MOST_FUNCTIONS * self.limits.seconds), self.submission.slow_imports
        process = self._sandbox.fork(cpu_seconds, data_bytes, modules)
        self.spent.workers += 1
        self._connection = connection = Connection(process, self.limits.reply_bytes, self._bytes_left)
        sizes = {path: len(source) for path, source in self.submission.files.items()}
        token = secrets.token_hex(8)
        header = {"files": sizes, "adapters": self.submission.adapters, "token": token}
        frame = pack(header, tail=b"".join(self.submission.files.values()))
        imported = self._send(connection, "the import", frame, token, [])
        for lesson in self._lender.lessons if self._lender and not imported.is_failed else ():
            taught = self._teach(connection, *lesson)
            if taught.stopped and data_bytes < self.limits.memory_bytes:  # the lesson may succeed with more
                return connection, taught
            if taught.stopped and self._lender:
                self._lender.drop(lesson)
                return self._start(data_bytes)
        return connection, imported

    def _teach(self, connection: Connection, lesson: RemoteCall, names: Sequence[str]) -> Reply:
        """Show a worker a function whose calls the lender answers."""
        token = secrets.token_hex(8)
        frame, _ = lesson.frame(lesson.arguments, lesson=names, token=token)
        reply = self._send(connection, lesson.call, frame, token, [])
        self._timed_out[lesson.call] -= isinstance(reply.stopped, TimedOut)  # a slow lesson forbids no call
        return reply

    def _send(self, connection: Connection, what: str, frame: bytes, token: str, tensors: list[Tensor]) -> Reply:
        """Send a request and wait for its answer; kill a worker that gives none."""
        self._what = what
        connection.send(frame)
        try:
            self._wait(connection)
            while self._lender and (reply := self._lender.reply(connection.reply or (b"", b""), token)):
                self._count_bytes(connection)
                if self._bytes > ANSWERS_BYTES:
                    raise LimitExceeded(f"{what}: all its requests together are larger than they can need to be")
                connection.send(reply)
                self._wait(connection)
            reply = check(connection.reply or (b"", b""), token, tensors)
            self._count_bytes(connection)
        except FrameError as error:
            reply = Reply(stopped=ProtocolViolation(f"{what}: {printable(str(error))}"))  # it quotes the reply
        except WorkerStopped as stopped:
            reply = Reply(stopped=stopped)
            self._timed_out[what] += isinstance(stopped, TimedOut)
        except BaseException:
            self.end_worker()
            raise
        reply = replace(reply, printed=_take_printed(connection))
        if reply.stopped:
            self.end_worker()
        if isinstance(reply.stopped, WorkerDied):
            self._sandbox.check()  # the submission is not to blame if the whole sandbox has ended
        return reply

    def _count_bytes(self, connection: Connection) -> None:
        """Add the reply to the total; refuse bytes after it."""
        header, body = connection.reply or (b"", b"")
        self._bytes += HEADER_TIMES * len(header) + len(body)
        if connection.surplus:
            raise FrameError(f"{connection.surplus} bytes after the reply")

    def _wait(self, connection: Connection) -> None:
        """Wait for a reply, for a fifth of the time once the submission has stalled, or it could stall for minutes."""
        seconds = self.limits.call_seconds / (5 if self._timed_out.total() >= TIMEOUTS else 1)
        try:
            connection.exchange(0)
            connection.exchange(SAMPLE_SECONDS)  # long enough for most calls
            if not connection.reply:
                self._watch(connection, seconds)
            self._check_size(connection)  # threads outlive a call
        except EOFError:
            raise WorkerDied(f"{self._what}: {_describe_end(connection)}") from None
        except TooLongError as error:
            raise LimitExceeded(f"{self._what}: {error}") from None

    def _watch(self, connection: Connection, seconds: float) -> None:
        """Wait for a slow reply, and sample the worker's time and size meanwhile."""
        self._check_size(connection)
        own = OwnTime(connection.process.pid)
        before = self.spent.seconds[self._for]
        sampled = started = time.monotonic()
        while not connection.reply:
            connection.exchange(SAMPLE_SECONDS)
            time.sleep(PAUSE_SECONDS)
            now = time.monotonic()
            if now < sampled + SAMPLE_SECONDS:
                continue
            sampled = now
            connection.listen()
            self._check_size(connection)
            computed, passed = own.used()
            self.spent.seconds[self._for] = before + max(computed, passed)
            settled = max(computed, passed - SETTLING_SECONDS)
            if settled > seconds:
                raise TimedOut(f"{self._what}: no answer within {seconds:g} s in which it computed or slept")
            if before + settled > self.limits.seconds:
                most = f"{self.limits.seconds:g} s that all its calls may take"
                raise TimedOut(f"{self._what}: no answer within the {most}")
            if now - started > seconds * self.limits.patience:
                clock = f"no answer within {now - started:.0f} s on the clock"
                used = f"of which it computed or slept for {max(computed, passed):.1f} s"
                raise Starved(f"{self._what}: {clock}, {used}; the machine is too busy to grade")

    def _check_size(self, connection: Connection) -> None:
        """Check the worker's threads and memory; end it if its main thread has ended."""
        try:
            fields = connection.process.read_stat()
        except ProcessLookupError:
            return  # the worker has just ended
        threads, memory = int(fields[17]), int(fields[21]) * PAGE
        if memory == 0:  # the main thread has ended; the memory of the others is invisible
            connection.process.end()
        if threads > self.limits.threads:
            raise LimitExceeded(f"{self._what}: more than {self.limits.threads} threads")
        if memory > self.limits.memory_bytes:
            raise LimitExceeded(f"{self._what}: more than {self.limits.memory_bytes >> 20} MiB of memory")


def _take_printed(connection: Connection) -> tuple[str, str]:
    """Take the text that the worker has printed on stdout and stderr since the last call."""
    connection.listen()
    out, err = (each.decode(errors="replace") for each in connection.printed.values())
    for each in connection.printed.values():
        each.clear()
    return hide_paths(printable(out)), hide_paths(printable(err))


def _describe_end(connection: Connection) -> str:
    """Describe how a worker ended. Python's last words are dropped, since they name files of this machine."""
    connection.listen()
    stderr = connection.printed["stderr"]
    stderr[:], _, fault = stderr.partition(LAST_WORDS)
    is_segmentation = fault.startswith(b"Segmentation fault")
    return f"the process ended {'with a segmentation fault' if is_segmentation else 'or closed its channel'}"

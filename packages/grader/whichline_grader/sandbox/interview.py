"""Ask one submission questions, one after the other, and hold its workers to their limits.

A question goes out when the answer to the one before is in, and closed by the token that came with it: nothing of a
later question can be seen early, and no answer given to another one. A question that ends the worker, hangs or floods
has that as its answer, and the next one goes to a fresh worker.
"""

import math
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor

from whichline_grader.sandbox.answer import (
    Answer,
    LimitExceeded,
    NotAsked,
    ProtocolViolation,
    TimedOut,
    WorkerDied,
    WorkerStopped,
    check,
)
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.connection import Connection, TooLongError
from whichline_grader.sandbox.inside.frames import FrameError, encode, pack
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.own_time import OwnTime
from whichline_grader.sandbox.printable import hide_places, printable
from whichline_grader.sandbox.question import Question
from whichline_grader.sandbox.submission import Submission

SAMPLE_SECONDS = 0.01
PAUSE_SECONDS = 0.001  # in a long call: a reply that comes byte by byte would cost this side as much as the worker
MOST_FUNCTIONS = 50  # that take all of their time; the kernel ends a worker that has used more
TIMEOUTS = 2  # calls without an answer, after which a submission gets less time for each
LAST_WORDS = b"Fatal Python error: "  # on stderr
# What all answers of a submission may have, since they are kept until its tests have run. A header is read as objects,
# which take many times its bytes.
ANSWERS_BYTES, HEADER_TIMES = 256 << 20, 16
# A thread's wait for a processor is told when it is over, so what looks like sleep may yet turn out to be that.
SETTLING_SECONDS = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


class Starved(BaseException):
    """A worker got so little of the machine that nothing can be said about it: our fault, and never a grade.

    It is neither an Exception nor a `Stopped`, since what a test makes of those goes into the grade.
    """


@dataclass
class Spent:
    """The time that one submission has used for each function, and its workers, in all of its interviews."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    workers: int = 0


class Lender(Protocol):
    """Answers for functions of a submission that it calls itself.

    Attributes:
        lessons: calls that show a worker which functions these are, each with the names of its arguments.
    """

    lessons: Sequence[tuple[Question, Sequence[str]]]

    def drop(self, lesson: tuple[Question, Sequence[str]]) -> None:
        """Lend nothing that is learned from a lesson."""
        ...

    def begin(self, question: Question, token: str) -> None:
        """Begin with a question, which has this token. In a lesson nothing is lent."""
        ...

    def reply(self, raw: tuple[bytes, bytes], token: str) -> bytes | None:
        """The frame for what came in the place of an answer; None if it is the answer."""
        ...


class Interview:
    """One submission, and the worker that answers for it now.

    Args:
        sandbox: where its workers are.
        submission: who is asked.
        limits: of its workers.
        lender: who answers for some of its functions, if anybody does.
        spent: what the same submission has used before.

    Attributes:
        imported: the answer to the first import of the submission, once a question was asked.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        submission: Submission,
        limits: Limits | None = None,
        lender: Lender | None = None,
        spent: Spent | None = None,
    ) -> None:
        self.submission, self.limits, self._lender = submission, limits or Limits(), lender
        self.spent = spent or Spent()
        self.imported: Answer | None = None
        self._failed_import: Answer | None = None
        self._sandbox = sandbox
        self._connection: Connection | None = None
        self._bytes = 0  # of all answers so far
        self._for = ""  # the function that is asked for, which pays for imports and lessons, too
        self._timed_out: Counter[str] = Counter()
        self._room = {"stdout": self.limits.output_bytes, "stderr": self.limits.output_bytes}

    def ask(self, question: Question, values: Sequence[object] = ()) -> Answer:
        """The answer to a question, whatever the submission does.

        Args:
            question: what is asked.
            values: what the answers to the questions of the same test before this one hold.

        Raises:
            SandboxError: the sandbox has stopped working.
            Starved: the machine is too busy.
        """
        seal = _seal()
        try:
            frame, tensors = question.frame(question.fill_in(values), **seal)
        except (LookupError, TypeError, FrameError) as error:
            return Answer(stopped=NotAsked(f"{question.call} is not called with what the call before it gave: {error}"))
        if stopped := self._say_why_not(question.call):
            return Answer(stopped=stopped)
        if self._lender:
            self._lender.begin(question, seal["token"])
        if not question.memory:
            return self._answer(question.call, frame, seal, tensors)
        self.end_worker()
        try:
            return self._answer(question.call, frame, seal, tensors, question.memory)
        finally:
            self.end_worker()

    def ask_for(self, what: str, *arguments: object) -> Answer:
        """The answer to a request that is not a call of an adapter, by a worker that knows what that is."""
        seal, tensors = _seal(), list[Tensor]()
        encoded = [encode(each, tensors) for each in arguments]
        return self._answer(what, pack({"call": what, "arguments": encoded} | seal, tensors), seal, [])

    def end_worker(self) -> None:
        """Kill what runs; the next question goes to a worker that has seen nothing. Nothing of it is left."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.process.kill()

    def __enter__(self) -> "Interview":
        return self

    def __exit__(self, *_: object) -> None:
        self.end_worker()

    def _say_why_not(self, call: str) -> WorkerStopped | None:
        """Say why an adapter is not called; nothing if it is."""
        if self._timed_out[call] and self._timed_out.total() >= TIMEOUTS:
            return TimedOut(f"{call} is not called again, since it gave no answer in its time")
        if self.spent.seconds[call] > self.limits.seconds:
            return TimedOut(f"{call} has used the {self.limits.seconds:g} s that all its calls may take")
        if self._bytes > ANSWERS_BYTES:
            return LimitExceeded(
                f"{call} is not called again: all answers together are larger than they can need to be"
            )
        return None

    def _answer(self, what: str, frame: bytes, seal: dict[str, Any], tensors: list[Tensor], memory: int = 0) -> Answer:
        """The answer of the worker that is there, or of a fresh one, which imports the submission first."""
        self._for = what
        failed = self._failed_import
        connection = self._connection
        if connection is None and not failed:
            connection, imported = self._start(memory or self.limits.memory_bytes)
            failed = imported if imported.is_failed else None
            if not memory:  # else more of it may be enough
                # What a later one prints or raises may tell what a hidden question held: it is not shown.
                self.imported, self._failed_import = self.imported or imported, failed
        if failed or connection is None:
            self.end_worker()
            return replace(failed or Answer(), printed=("", ""))
        return self._send(connection, what, frame, seal, tensors)

    def _start(self, data_bytes: int) -> tuple[Connection, Answer]:
        """A worker, and what became of the import of the submission there."""
        cpu_seconds, modules = math.ceil(MOST_FUNCTIONS * self.limits.seconds), self.submission.slow_imports
        process = self._sandbox.fork(cpu_seconds, data_bytes, modules)
        self.spent.workers += 1
        self._connection = connection = Connection(process, self.limits.reply_bytes, self._room)
        sizes = {path: len(source) for path, source in self.submission.files.items()}
        seal = _seal()
        header = {"files": sizes, "adapters": self.submission.adapters} | seal
        frame = pack(header, tail=b"".join(self.submission.files.values()))
        imported = self._send(connection, "the import", frame, seal, [])
        for lesson in self._lender.lessons if self._lender and not imported.is_failed else ():
            taught = self._teach(connection, *lesson)
            if taught.stopped and data_bytes < self.limits.memory_bytes:  # with more it may be learned
                return connection, taught
            if taught.stopped and self._lender:
                self._lender.drop(lesson)
                return self._start(data_bytes)
        return connection, imported

    def _teach(self, connection: Connection, lesson: Question, names: Sequence[str]) -> Answer:
        """Show a worker which function somebody else answers for."""
        seal = _seal()
        frame, _ = lesson.frame(lesson.arguments, lesson=names, **seal)
        answer = self._send(connection, lesson.call, frame, seal, [])
        self._timed_out[lesson.call] -= isinstance(answer.stopped, TimedOut)  # no call is refused for it
        return answer

    def _send(
        self, connection: Connection, what: str, frame: bytes, seal: dict[str, Any], tensors: list[Tensor]
    ) -> Answer:
        """Send a request and wait for its answer; a worker that gives none is killed."""
        self._what = what
        connection.send(frame)
        try:
            self._wait(connection, self._call_seconds)
            while self._lender and (reply := self._lender.reply(connection.reply or (b"", b""), seal["token"])):
                self._count(connection)
                if self._bytes > ANSWERS_BYTES:
                    raise LimitExceeded(f"{what}: all that it asks is larger than it can need to be")
                connection.send(reply)
                self._wait(connection, self._call_seconds)
            answer = check(connection.reply or (b"", b""), seal["token"], tensors)
            self._count(connection)
        except FrameError as error:
            answer = Answer(stopped=ProtocolViolation(f"{what}: {printable(str(error))}"))  # it quotes what came
        except WorkerStopped as stopped:
            answer = Answer(stopped=stopped)
            self._timed_out[what] += isinstance(stopped, TimedOut)
        except BaseException:
            self.end_worker()
            raise
        answer = replace(answer, printed=_take_printed(connection))
        if answer.stopped:
            self.end_worker()
        if isinstance(answer.stopped, WorkerDied):
            self._sandbox.check()  # if the whole sandbox has ended, that is not the submission's doing
        return answer

    def _count(self, connection: Connection) -> None:
        """Count what came, of which there may be so much in all, and nothing more behind it."""
        header, body = connection.reply or (b"", b"")
        self._bytes += HEADER_TIMES * len(header) + len(body)
        if connection.surplus:
            raise FrameError(f"{connection.surplus} bytes after the reply")

    @property
    def _call_seconds(self) -> float:
        """The time that the next call may take: a fifth once the submission has stalled, lest it do so for minutes."""
        return self.limits.call_seconds / (5 if self._timed_out.total() >= TIMEOUTS else 1)

    def _wait(self, connection: Connection, seconds: float) -> None:
        """Wait for the reply, while the worker is held to its limits."""
        try:
            connection.exchange(0)
            connection.exchange(SAMPLE_SECONDS)  # most calls need no more
            if not connection.reply:
                self._watch(connection, seconds)
            self._check_size(connection)  # threads stay when a call has ended
        except EOFError:
            raise WorkerDied(f"{self._what}: {_say_how_it_ended(connection)}") from None
        except TooLongError as error:
            raise LimitExceeded(f"{self._what}: {error}") from None

    def _watch(self, connection: Connection, seconds: float) -> None:
        """Wait for a reply of a process that takes its time, and look at it from outside."""
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
                message = f"no answer within {now - started:.0f} s on the clock, of which it computed or slept for"
                raise Starved(
                    f"{self._what}: {message} {max(computed, passed):.1f} s; the machine is too busy to grade"
                )

    def _check_size(self, connection: Connection) -> None:
        """Look at the threads and the memory of the worker, and end it if it cannot answer any more."""
        try:
            fields = connection.process.read_stat()
        except ProcessLookupError:
            return  # it has just ended
        threads, memory = int(fields[17]), int(fields[21]) * PAGE
        if memory == 0:  # its main thread has ended; the others would hold memory that is not seen any more
            connection.process.end()
        if threads > self.limits.threads:
            raise LimitExceeded(f"{self._what}: more than {self.limits.threads} threads")
        if memory > self.limits.memory_bytes:
            raise LimitExceeded(f"{self._what}: more than {self.limits.memory_bytes >> 20} MiB of memory")


def _seal() -> dict[str, str]:
    """The rest of a request: a token that closes its answer, and does not say how many were asked before."""
    return {"token": secrets.token_hex(8)}


def _take_printed(connection: Connection) -> tuple[str, str]:
    """Take the text that the worker has printed since the last time, on stdout and on stderr."""
    connection.listen()
    out, err = (each.decode(errors="replace") for each in connection.printed.values())
    for each in connection.printed.values():
        each.clear()
    return hide_places(printable(out)), hide_places(printable(err))


def _say_how_it_ended(connection: Connection) -> str:
    """Tell all that is known of it. Python's last words name files of this machine, and are not kept."""
    connection.listen()
    stderr = connection.printed["stderr"]
    if (place := stderr.find(LAST_WORDS)) < 0:
        return "the process ended or closed its channel"
    fault = stderr.startswith(b"Segmentation fault", place + len(LAST_WORDS))
    del stderr[place:]
    return "the process ended with a segmentation fault" if fault else "the process ended or closed its channel"

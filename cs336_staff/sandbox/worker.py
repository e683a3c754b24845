"""Talk to the workers of one submission, within limits, and kill them."""

import math
import os
import select
import sysconfig
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import FrameSummary
from typing import Any

from torch import Tensor

from cs336_kit.engine.failure import Stopped, StudentRaised
from cs336_kit.engine.result import Outcome
from cs336_kit.rules.watch import Use
from cs336_staff.sandbox.channel import CHUNK, Channel, TooLongError
from cs336_staff.sandbox.confinement import Process, Sandbox
from cs336_staff.sandbox.inside.frames import FrameError, parse_header
from cs336_staff.sandbox.limits import Limits
from cs336_staff.sandbox.own_time import OwnTime
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.replies import MAX_ITEMS, Line, Reply, check
from cs336_staff.sandbox.request import Request
from cs336_staff.sandbox.submission import Submission

SAMPLE_SECONDS = 0.01
PAUSE_SECONDS = 0.001  # in a long call: a reply that comes byte by byte would cost this side as much as the worker
AHEAD = 16  # requests that a worker has before it is asked for their replies
DROPPED_SECONDS = 1.0  # that a worker may take for a reply that nobody needs
TIMEOUTS = 2  # calls without an answer, after which a submission gets less time for each
LAST_WORDS = b"Fatal Python error: "  # on stderr
# A thread's wait for a processor is told when it is over, so what looks like sleep may yet turn out to be that.
SETTLING_SECONDS = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")
# Where Python and the packages lie on this machine, which is not students' business.
PLACES = [f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")]


class WorkerStopped(Stopped):
    """A call got no answer that can be used, and the worker was killed."""


class TimedOut(WorkerStopped):
    """A call, or the submission as a whole, took more of its own time than it may."""


class LimitExceeded(WorkerStopped):
    """More memory, threads or bytes of reply than allowed."""


class WorkerDied(WorkerStopped):
    """The process ended, or closed its channel, during a call."""


class ProtocolViolation(WorkerStopped):
    """The worker wrote what no worker writes: the submission has meddled with the channel."""

    outcome = Outcome.VIOLATION


class Starved(BaseException):
    """A worker got so little of the machine that nothing can be said about it: our fault, and never a grade.

    It is neither an Exception nor a `Stopped`, since what a test makes of those goes into the grade.
    """


@dataclass(frozen=True)
class _Sent:
    """A request that a process has been given, or is given as soon as its socket takes it."""

    sequence: int
    request: Request
    test: int  # the number of the test that it was foreseen for; 0 if it was not

    @property
    def what(self) -> str:
        return self.request.header.get("call", "the import")


class _Conversation:
    """A process, and what it has been asked and not been heard on."""

    def __init__(self, process: Process, reply_bytes: int, printed: int) -> None:
        self.process = process
        self.printed = printed  # bytes on stderr by the processes before
        self.channel = Channel(process.channel, reply_bytes)
        self.sent: deque[_Sent] = deque()
        self.poll = select.poll()
        for descriptor in (process.channel.fileno(), process.stdout, process.stderr):
            self.poll.register(descriptor, select.POLLIN)


class Worker:
    """One submission behind its adapters.

    The first call starts a process and imports the submission; so does the next call after a process had to be
    killed, as long as the submission's time lasts.

    Requests that are foreseen are sent before the tests make them, so that the process computes while this side
    compares. A call that is what was foreseen gets the reply to that; any other one is made when all that was sent
    before it is answered.

    Attributes:
        missing: packages that it imported and the sandbox lacks.
        forbidden: what it has run of what students must write themselves.
    """

    def __init__(self, sandbox: Sandbox, submission: Submission, limits: Limits | None = None) -> None:
        self.submission = submission
        self.limits = limits or Limits()
        self.missing: set[str] = set()
        self.forbidden: set[Use] = set()
        self.peak_memory = 0
        self._sandbox = sandbox
        self._data_bytes = self.limits.memory_bytes
        self._conversation: _Conversation | None = None
        self._import_failure: StudentRaised | WorkerStopped | None = None
        self._sequence = 0
        self._seconds = 0.0  # of all processes so far
        self._timed_out: Counter[str] = Counter()
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._test = 1
        self._foreseen: deque[tuple[int, Request]] = deque()  # with the number of the test
        self._ahead = 1  # how many may be sent now: more as long as they are what the tests ask for

    @property
    def stdout(self) -> str:
        """The submission's own output, up to `Limits.output_bytes`; shown, never parsed."""
        return self._printed("stdout")

    @property
    def stderr(self) -> str:
        return self._printed("stderr")

    def foresee(self, requests: Sequence[Sequence[Request]]) -> None:
        """Say which requests each of the next tests will make; they may be sent from now on.

        Call `next_test` when each of them begins.
        """
        self._foreseen = deque((self._test + 1 + i, one) for i, each in enumerate(requests) for one in each)

    def next_test(self) -> None:
        self._test += 1
        self._forget(before=self._test)

    def call(self, header: dict[str, Any], tensors: list[Tensor]) -> Reply:
        """Send a request of `cs336_staff/sandbox/inside/serve.py`, if it is not sent yet, and wait for its reply.

        Raises:
            StudentRaised: the student's code raised, here or when it was imported.
            WorkerStopped: there is no usable reply.
            SandboxError: the sandbox has stopped working.
            Starved: the machine is too busy.
        """
        what = header["call"]
        if self._timed_out[what] and self._timed_out.total() >= TIMEOUTS:
            raise TimedOut(f"{what} is not called again, since it gave no answer in its time")
        if self._seconds > self.limits.seconds:
            raise TimedOut(f"the submission has used the {self.limits.seconds:g} s that all its calls may take")
        self._drop(before=self._test)
        first = self._first_foreseen()
        if first is not None and first.is_for(header, tensors):
            conversation = self._conversation or self._start()
            self._send_ahead(conversation)
        else:
            self._forget(before=self._test + 1)
            if self._conversation is not None:
                self._take_back(self._conversation)
                self._drop(before=self._test)
            conversation = self._conversation or self._start()
            self._send(conversation, Request(header, tensors))
        return self._answer(conversation)

    @contextmanager
    def with_memory(self, data_bytes: int) -> Iterator[None]:
        """Calls in here go to a process of their own, which may map no more private memory than this."""
        kept = self._conversation, self._import_failure, self._data_bytes
        self._conversation, self._data_bytes = None, data_bytes
        try:
            yield
        finally:
            self.close()
            self._conversation, self._import_failure, self._data_bytes = kept

    def close(self) -> None:
        """Kill what runs. Returns when nothing of it is left."""
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            self._listen(conversation)
            self.peak_memory = max(self.peak_memory, _peak_memory(conversation.process.pid))
            conversation.process.kill()
            self._take_back(conversation)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> _Conversation:
        if self._import_failure is not None:
            raise self._import_failure.with_traceback(None)
        cpu_seconds, modules = math.ceil(2 * self.limits.seconds), self.submission.slow_imports
        process = self._sandbox.fork(cpu_seconds, self._data_bytes, modules)
        self._conversation = conversation = _Conversation(process, self.limits.reply_bytes, len(self._output["stderr"]))
        sizes = {path: len(source) for path, source in self.submission.files.items()}
        header = {"files": sizes, "adapters": self.submission.adapters}
        self._send(conversation, Request(header, [], b"".join(self.submission.files.values())))
        try:
            self._answer(conversation)
        except (StudentRaised, WorkerStopped) as failure:
            self.close()
            self._import_failure = failure
            raise
        return conversation

    # What is foreseen.

    def _first_foreseen(self) -> Request | None:
        """The request that this test is expected to make next."""
        if self._conversation is not None and self._conversation.sent:
            sent = self._conversation.sent[0]
            return sent.request if sent.test == self._test else None
        if self._foreseen and self._foreseen[0][0] == self._test:
            return self._foreseen[0][1]
        return None

    def _forget(self, before: int) -> None:
        """Send nothing more that was foreseen for tests before number `before`."""
        while self._foreseen and self._foreseen[0][0] < before:
            self._foreseen.popleft()

    def _send_ahead(self, conversation: _Conversation) -> None:
        """Send what is foreseen, when less than half of what may be on its way is."""
        if len(conversation.sent) <= self._ahead // 2:
            while self._foreseen and len(conversation.sent) < self._ahead:
                test, request = self._foreseen.popleft()
                self._send(conversation, request, test)
            if conversation.channel.replies:  # there will be no wait in which it could be written
                conversation.channel.write()
        self._ahead = min(AHEAD, 2 * self._ahead)

    def _drop(self, before: int) -> None:
        """Wait for the replies to what was sent ahead for tests before number `before`.

        A process that does not answer properly is killed, and no call is to blame.
        """
        conversation = self._conversation
        while conversation is not None and conversation.sent and conversation.sent[0].test < before:
            self._ahead = 1
            try:
                self._wait(conversation, min(self._call_seconds, DROPPED_SECONDS))
            except (FrameError, WorkerStopped):
                self.close()
                return
            conversation.channel.replies.popleft()
            conversation.sent.popleft()

    def _take_back(self, conversation: _Conversation) -> None:
        """Nobody waits for what was sent ahead any more; what is foreseen for later tests will be sent again."""
        again = [(sent.test, sent.request) for sent in conversation.sent if sent.test > self._test]
        self._foreseen.extendleft(reversed(again))
        conversation.sent = deque(replace(sent, test=0) for sent in conversation.sent)

    # Sending and receiving.

    def _send(self, conversation: _Conversation, request: Request, test: int = 0) -> None:
        self._sequence += 1
        conversation.channel.put(request.frame(self._sequence))
        conversation.sent.append(_Sent(self._sequence, request, test))

    def _answer(self, conversation: _Conversation) -> Reply:
        """The reply to the first of what was sent."""
        sent = conversation.sent[0]
        try:
            self._wait(conversation, self._call_seconds)
            conversation.sent.popleft()
            header, body = conversation.channel.replies.popleft()
            request = sent.request.header | {"sequence": sent.sequence}
            reply = check(parse_header(header), body, request, sent.request.tensors)
            if isinstance(conversation.channel.error, FrameError) and not conversation.sent:
                raise conversation.channel.error
        except FrameError as error:
            self.close()
            raise ProtocolViolation(f"{sent.what}: {printable(str(error))}") from None  # it quotes what came
        except TimedOut:
            self.close()
            self._timed_out[sent.what] += 1
            raise
        except WorkerDied:
            self.close()
            self._sandbox.check()  # if the whole sandbox has ended, that is not the submission's doing
            raise
        except BaseException:
            self.close()
            raise
        if len(self.missing) < MAX_ITEMS:  # a hostile worker has others at each call
            self.missing.update(reply.missing)
        if len(self.forbidden) < MAX_ITEMS:
            self.forbidden.update(replace(use, source=self._source(use)) for use in reply.forbidden)
        if reply.failure is None:
            return reply
        lines = reply.failure.lines
        frames = [FrameSummary(line.file, line.number, line.function, line=self._source(line)) for line in lines]
        raise StudentRaised(reply.failure.type, _without_places(reply.failure.message), frames)

    def _source(self, place: Line | Use) -> str:
        return printable(self.submission.line(place.file, place.number))

    @property
    def _call_seconds(self) -> float:
        """The time that the next call may take: a fifth once the submission has stalled, lest it do so for minutes."""
        return self.limits.call_seconds / (5 if self._timed_out.total() >= TIMEOUTS else 1)

    def _wait(self, conversation: _Conversation, seconds: float) -> None:
        """Wait for a reply, while the worker is held to its limits."""
        channel, what = conversation.channel, conversation.sent[0].what
        try:
            self._exchange(conversation, 0)
            self._exchange(conversation, SAMPLE_SECONDS)  # most calls need no more
            if not channel.replies:
                self._watch(conversation, what, seconds)
            self._check_size(conversation, what)  # threads stay when a call has ended
        except EOFError:
            raise WorkerDied(f"{what}: {self._say_how_it_ended(conversation)}") from None
        except TooLongError as error:
            raise LimitExceeded(f"{what}: {error}") from None

    def _watch(self, conversation: _Conversation, what: str, seconds: float) -> None:
        """Wait for a reply of a process that takes its time, and look at it from outside."""
        self._check_size(conversation, what)
        own = OwnTime(conversation.process.pid)
        before = self._seconds
        sampled = started = time.monotonic()
        while not conversation.channel.replies:
            self._exchange(conversation, SAMPLE_SECONDS)
            time.sleep(PAUSE_SECONDS)
            now = time.monotonic()
            if now < sampled + SAMPLE_SECONDS:
                continue
            sampled = now
            self._listen(conversation)
            self._check_size(conversation, what)
            computed, passed = own.used()
            self._seconds = before + max(computed, passed)
            settled = max(computed, passed - SETTLING_SECONDS)
            if settled > seconds:
                raise TimedOut(f"{what}: no answer within {seconds:g} s in which it computed or slept")
            if before + settled > self.limits.seconds:
                raise TimedOut(f"{what}: no answer within the {self.limits.seconds:g} s that all calls may take")
            if now - started > seconds * self.limits.patience:
                message = f"no answer within {now - started:.0f} s on the clock, of which it computed or slept for"
                raise Starved(f"{what}: {message} {max(computed, passed):.1f} s; the machine is too busy to grade")

    def _say_how_it_ended(self, conversation: _Conversation) -> str:
        """Tell all that is known of it. Python's last words name files of this machine, and are not kept."""
        self._listen(conversation)
        stderr = self._output["stderr"]
        if (place := stderr.find(LAST_WORDS, conversation.printed)) < 0:
            return "the process ended or closed its channel"
        fault = stderr.startswith(b"Segmentation fault", place + len(LAST_WORDS))
        del stderr[place:]
        return "the process ended with a segmentation fault" if fault else "the process ended or closed its channel"

    def _exchange(self, conversation: _Conversation, seconds: float) -> None:
        """Read and write what can be read and written, if there is a reply to wait for."""
        channel, process = conversation.channel, conversation.process
        if channel.replies:
            return
        if channel.error is not None:
            raise channel.error
        writing = channel.wants_to_write
        if writing:
            conversation.poll.modify(process.channel.fileno(), select.POLLIN | select.POLLOUT)
        for descriptor, event in conversation.poll.poll(seconds * 1000):
            if descriptor != process.channel.fileno():
                stream = "stdout" if descriptor == process.stdout else "stderr"
                if not self._keep(descriptor, self._output[stream]):
                    conversation.poll.unregister(descriptor)
            elif event == select.POLLOUT:
                channel.write()
            else:
                channel.read()
        if writing and not channel.wants_to_write:
            conversation.poll.modify(process.channel.fileno(), select.POLLIN)

    def _listen(self, conversation: _Conversation) -> None:
        """Take what it has printed."""
        self._keep(conversation.process.stdout, self._output["stdout"])
        self._keep(conversation.process.stderr, self._output["stderr"])

    def _printed(self, stream: str) -> str:
        if self._conversation is not None:
            self._listen(self._conversation)
        return _without_places(printable(self._output[stream].decode(errors="replace")))

    def _keep(self, stream: int, kept: bytearray) -> bool:
        """Take what is in a pipe; False when its other end is closed, or no more of it is kept.

        Whoever prints more waits until it is taken now and then: to take it at once would cost half of a processor.
        """
        try:
            data = os.read(stream, CHUNK)
        except BlockingIOError:
            return True
        kept += data[: self.limits.output_bytes - len(kept)]
        return bool(data) and len(kept) < self.limits.output_bytes

    def _check_size(self, conversation: _Conversation, what: str) -> None:
        """Look at the threads and the memory of the worker, and end it if it cannot answer any more."""
        try:
            fields = _stat(f"/proc/{conversation.process.pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return  # it has just ended
        threads, memory = int(fields[17]), int(fields[21]) * PAGE
        if memory == 0:  # its main thread has ended; the others would hold memory that is not seen any more
            conversation.process.end()
        if threads > self.limits.threads:
            raise LimitExceeded(f"{what}: more than {self.limits.threads} threads")
        if memory > self.limits.memory_bytes:
            raise LimitExceeded(f"{what}: more than {self.limits.memory_bytes >> 20} MiB of memory")


def _without_places(text: str) -> str:
    """`text` with `torch/functional.py` where a warning or an ImportError names the whole path."""
    for place in PLACES:
        text = text.replace(place, "")
    return text


def _peak_memory(pid: int) -> int:
    """The most bytes that a process held at once, with what it shares with others; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            lines = dict(line.split(":", 1) for line in status)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(lines.get("VmHWM", "0 kB").split()[0]) << 10


def _stat(path: str) -> list[str]:
    """The fields of a process or thread from the third on: the second, its name, may hold anything."""
    with open(path, encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()

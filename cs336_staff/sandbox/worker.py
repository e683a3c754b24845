"""Talk to the workers of one submission, within limits, and kill them."""

import math
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from cs336_staff.sandbox.confinement import Process, Sandbox
from cs336_staff.sandbox.inside.frames import MAX_HEADER_BYTES, PREFIX, FrameError, pack, parse_header
from cs336_staff.sandbox.replies import MAX_ITEMS, Line, Reply, check, printable
from cs336_staff.sandbox.submission import Submission

SAMPLE_SECONDS = 0.01
CHUNK = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Limits:
    """What a submission may use. The import counts as a call.

    Attributes:
        call_seconds, call_cpu_seconds: wall and processor time of one call.
        seconds, cpu_seconds: of all calls of the submission together.
        memory_bytes: resident memory of a worker; also the private memory that it may map beyond the zygote's.
        threads: of a worker.
        reply_bytes: of the tensors in one reply.
        output_bytes: kept of each of stdout and stderr; the rest is dropped.
    """

    call_seconds: float = 10.0
    call_cpu_seconds: float = 10.0
    seconds: float = 120.0
    cpu_seconds: float = 120.0
    memory_bytes: int = 1 << 30  # a container of 3 GB holds the grader too, which takes less than 1.5 GiB
    threads: int = 32
    reply_bytes: int = 64 << 20
    output_bytes: int = 64 << 10


class WorkerStopped(BaseException):
    """A call got no answer that can be used, and the worker was killed.

    It is no Exception, so that neither a test's `except Exception` nor hypothesis, which would call again and again,
    takes it for an ordinary failure.
    """


class TimedOut(WorkerStopped):
    """A call, or the submission as a whole, took more wall or processor time than it may."""


class LimitExceeded(WorkerStopped):
    """More memory, threads or bytes of reply than allowed."""


class WorkerDied(WorkerStopped):
    """The process ended, or closed its channel, during a call."""


class ProtocolViolation(WorkerStopped):
    """The worker wrote what no worker writes: the submission has meddled with the channel."""


class StudentError(Exception):
    """The student's code raised an exception. `failure` has its type, its message and the lines it went through."""

    def __init__(self, failure: Any) -> None:
        self.failure = failure
        where = "".join(f"\n  {line.file}:{line.number} in {line.function}: {line.source}" for line in failure.lines)
        super().__init__(f"{failure.type}: {failure.message}{where}")


class StudentNotImplementedError(StudentError, NotImplementedError):
    """What the student has not written yet."""


class Worker:
    """One submission behind its adapters.

    The first call starts a process and imports the submission; so does the next call after a process had to be
    killed, as long as the submission's time lasts.

    Attributes:
        stdout, stderr: what the submission printed, up to `Limits.output_bytes` each; shown, never parsed.
        missing: packages that it imported and the sandbox lacks.
        forbidden: lines that called what students must write themselves; `Line.function` is what they called.
    """

    def __init__(self, sandbox: Sandbox, submission: Submission, limits: Limits | None = None) -> None:
        self.submission = submission
        self.limits = limits or Limits()
        self.missing: set[str] = set()
        self.forbidden: set[Line] = set()
        self._sandbox = sandbox
        self._data_bytes = self.limits.memory_bytes
        self._process: Process | None = None
        self._import_failure: StudentError | WorkerStopped | None = None
        self._sequence = 0
        self._seconds = 0.0
        self._cpu_seconds = 0.0  # of all processes so far
        self._cpu_seen = 0.0  # the part of it that is the present process's
        self._sampled = 0.0  # when it was last looked at from outside
        self._output = {"stdout": bytearray(), "stderr": bytearray()}

    @property
    def stdout(self) -> str:
        return printable(self._output["stdout"].decode(errors="replace"))

    @property
    def stderr(self) -> str:
        return printable(self._output["stderr"].decode(errors="replace"))

    def call(self, header: dict[str, Any], tensors: list[Tensor]) -> Reply:
        """Send a request of `cs336_staff/sandbox/inside/serve.py` and wait for its reply.

        Raises:
            StudentError: the student's code raised, here or when it was imported.
            WorkerStopped: there is no usable reply.
            SandboxError: the sandbox has stopped working.
        """
        if self._seconds >= self.limits.seconds or self._cpu_seconds >= self.limits.cpu_seconds:
            limits = f"{self.limits.seconds:.1f} s, or the {self.limits.cpu_seconds:.1f} s of processor time"
            raise TimedOut(f"the submission has used its {limits}, for all calls together")
        if self._process is None:
            self._start()
        return self._request(header, tensors)

    @contextmanager
    def with_memory(self, data_bytes: int) -> Iterator[None]:
        """Calls in here go to a process of their own, which may map no more private memory than this."""
        kept = self._process, self._cpu_seen, self._import_failure, self._data_bytes
        self._process, self._data_bytes = None, data_bytes
        try:
            yield
        finally:
            self.close()
            self._process, self._cpu_seen, self._import_failure, self._data_bytes = kept

    def close(self) -> None:
        """Kill what runs. Returns when nothing of it is left."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._import_failure is not None:
            raise self._import_failure.with_traceback(None)
        self._process = self._sandbox.fork(math.ceil(self.limits.cpu_seconds), self._data_bytes)
        self._cpu_seen = self._sampled = 0.0
        sizes = {path: len(source) for path, source in self.submission.files.items()}
        header = {"files": sizes, "adapters": self.submission.adapters}
        try:
            self._request(header, [], b"".join(self.submission.files.values()))
        except (StudentError, WorkerStopped) as failure:
            self.close()
            self._import_failure = failure
            raise

    def _request(self, header: dict[str, Any], tensors: list[Tensor], tail: bytes = b"") -> Reply:
        self._sequence += 1
        header = header | {"sequence": self._sequence}
        what = header.get("call", "the import")
        frame = pack(header, tensors, tail)
        try:
            reply = check(*self._exchange(frame, what), header, tensors)
        except FrameError as error:
            self.close()
            raise ProtocolViolation(f"{what}: {printable(str(error))}") from None  # it quotes what came
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
            self.forbidden.update(self._with_source(line) for line in reply.forbidden)
        if reply.failure is None:
            return reply
        failure = replace(reply.failure, lines=tuple(self._with_source(line) for line in reply.failure.lines))
        raise (StudentNotImplementedError if failure.not_implemented else StudentError)(failure)

    def _with_source(self, line: Line) -> Line:
        return replace(line, source=printable(self.submission.line(line.file, line.number)))

    def _exchange(self, frame: bytes, what: str) -> tuple[dict[str, Any], bytearray]:
        """Write `frame` and read one, while the worker is held to its limits."""
        process = self._process
        assert process is not None
        started = time.monotonic()
        deadline = started + min(self.limits.call_seconds, self.limits.seconds - self._seconds)
        cpu_deadline = min(self._cpu_seconds + self.limits.call_cpu_seconds, self.limits.cpu_seconds)
        streams = {process.stdout: self._output["stdout"], process.stderr: self._output["stderr"]}
        channel = process.channel.fileno()
        poll = select.poll()
        poll.register(channel, select.POLLIN | select.POLLOUT)
        for stream in streams:
            poll.register(stream, select.POLLIN)
        request, reply = memoryview(frame), bytearray()
        try:
            while not self._is_complete(reply, what):
                for descriptor, event in poll.poll(SAMPLE_SECONDS * 1000):
                    if descriptor in streams:
                        if not self._keep(descriptor, streams[descriptor]):
                            poll.unregister(descriptor)
                    elif event == select.POLLOUT:
                        request = request[os.write(channel, request[:CHUNK]) :]
                        if not request:
                            poll.modify(channel, select.POLLIN)
                    else:
                        data = process.channel.recv(CHUNK)
                        if not data:
                            raise WorkerDied(f"{what}: the process ended or closed its channel")
                        if request:
                            raise ProtocolViolation(f"{what}: the worker wrote before it had the request")
                        reply += data
                now = time.monotonic()
                if now > deadline:
                    raise TimedOut(f"{what}: no answer within {deadline - started:.1f} s")
                if now > self._sampled + SAMPLE_SECONDS:  # most calls are shorter than that
                    self._sampled = now
                    self._sample(process, what, cpu_deadline)
        except OSError as error:
            raise WorkerDied(f"{what}: the process ended or closed its channel ({error.strerror})") from None
        finally:
            self._seconds += time.monotonic() - started
            for stream, kept in streams.items():
                self._keep(stream, kept)
        header_bytes, _ = PREFIX.unpack_from(reply)
        body = PREFIX.size + header_bytes
        return parse_header(reply[PREFIX.size : body]), reply[body:]

    def _is_complete(self, reply: bytearray, what: str) -> bool:
        if len(reply) < PREFIX.size:
            return False
        header_bytes, body_bytes = PREFIX.unpack_from(reply)
        if header_bytes > MAX_HEADER_BYTES or body_bytes > self.limits.reply_bytes:
            raise LimitExceeded(
                f"{what}: a reply of {header_bytes + body_bytes} bytes, allowed are {self.limits.reply_bytes}"
            )
        excess = len(reply) - PREFIX.size - header_bytes - body_bytes
        if excess > 0:
            raise ProtocolViolation(f"{what}: {excess} bytes after the reply")
        return excess == 0

    def _keep(self, stream: int, kept: bytearray) -> bool:
        """Take what is in a pipe; False when its other end is closed."""
        try:
            data = os.read(stream, CHUNK)
        except BlockingIOError:
            return True
        kept += data[: self.limits.output_bytes - len(kept)]
        return bool(data)

    def _sample(self, process: Process, what: str, cpu_deadline: float) -> None:
        """Look at the worker from outside."""
        with open(f"/proc/{process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()  # from the third on: the second may hold anything
        cpu = (int(fields[11]) + int(fields[12])) / TICKS
        threads, resident = int(fields[17]), int(fields[21]) * PAGE
        self._cpu_seconds += cpu - self._cpu_seen
        self._cpu_seen = cpu
        if self._cpu_seconds > cpu_deadline:
            raise TimedOut(
                f"{what}: no answer within {self.limits.call_cpu_seconds:.1f} s of processor time a call or "
                f"{self.limits.cpu_seconds:.1f} s altogether"
            )
        if threads > self.limits.threads:
            raise LimitExceeded(f"{what}: {threads} threads, allowed are {self.limits.threads}")
        if resident > self.limits.memory_bytes:
            raise LimitExceeded(f"{what}: {resident >> 20} MiB of memory, allowed are {self.limits.memory_bytes >> 20}")

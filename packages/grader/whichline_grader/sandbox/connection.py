"""The bytes between this side and one worker: what it is asked, one question at a time, its reply, what it prints.

This side never waits in a write. A worker that writes more than is read waits until it is.
"""

import os
import select

from whichline_grader.sandbox.confinement import Process
from whichline_grader.sandbox.inside.frames import MAX_HEADER_BYTES, PREFIX

CHUNK = 1 << 20
# What a reply may have: an answer of small inputs may be larger than they are, one of large inputs some times as large.
REPLY_BYTES, REPLY_TIMES = 1 << 20, 16


class TooLongError(Exception):
    """A reply has more bytes than are allowed."""


class Connection:
    """The streams of one worker.

    Args:
        process: the worker.
        reply_bytes: that the body of a reply may have, however large the question.
        room: bytes that are kept of each of stdout and stderr.

    Attributes:
        reply: header and body of the reply to what was sent last, once all of it is there; not checked.
        surplus: the bytes that came after it, of which there should be none.
        printed: what has come on stdout and on stderr since it was taken.
    """

    def __init__(self, process: Process, reply_bytes: int, room: dict[str, int]) -> None:
        self.process, self.reply, self.printed = process, (b"", b""), {"stdout": bytearray(), "stderr": bytearray()}
        self._room, self._reply_bytes = room, reply_bytes
        self._outgoing, self._incoming = memoryview(b""), bytearray()
        self._allowed = self.surplus = 0
        self._poll = select.poll()
        for descriptor in (process.channel.fileno(), process.stdout, process.stderr):
            self._poll.register(descriptor, select.POLLIN)

    def send(self, frame: bytes) -> None:
        """Write a question, as soon as the socket takes it."""
        self._outgoing, self.reply = memoryview(frame), None
        self._allowed = min(self._reply_bytes, REPLY_BYTES + REPLY_TIMES * len(frame))

    def exchange(self, seconds: float) -> None:
        """Read and write what can be read and written, if there is a reply to wait for.

        Raises:
            EOFError: the other end is closed.
            TooLongError: the reply is too long.
        """
        if self.reply is not None:
            return
        channel = self.process.channel.fileno()
        self._poll.modify(channel, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        for descriptor, event in self._poll.poll(seconds * 1000):
            if descriptor != channel:
                stream = "stdout" if descriptor == self.process.stdout else "stderr"
                if not self._keep(descriptor, stream):
                    self._poll.unregister(descriptor)
            elif event == select.POLLOUT:
                self._write()
            else:
                self._read()

    def listen(self) -> None:
        """Take what it has printed."""
        self._keep(self.process.stdout, "stdout")
        self._keep(self.process.stderr, "stderr")

    def _write(self) -> None:
        try:
            written = self.process.channel.send(self._outgoing[:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # what it has answered before it ended can still be read
            written = len(self._outgoing)
        self._outgoing = self._outgoing[written:]

    def _read(self) -> None:
        try:
            data = self.process.channel.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the other end is closed, and there is something that it has not read
            data = b""
        if not data:
            raise EOFError
        self._incoming += data
        if len(self._incoming) < PREFIX.size:
            return
        header_bytes, body_bytes = PREFIX.unpack_from(self._incoming)
        if header_bytes > MAX_HEADER_BYTES or body_bytes > self._allowed:
            raise TooLongError("a reply with more bytes than such a call can need")
        body = PREFIX.size + header_bytes
        end = body + body_bytes
        if len(self._incoming) >= end:
            self.reply = bytes(self._incoming[PREFIX.size : body]), bytes(self._incoming[body:end])
            self.surplus = len(self._incoming) - end
            self._incoming.clear()

    def _keep(self, descriptor: int, stream: str) -> bool:
        """Take what is in a pipe; False when its other end is closed, or no more of it is kept.

        Whoever prints more waits until it is taken now and then: to take it at once would cost half of a processor.
        """
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return True
        kept = data[: self._room[stream]]
        self.printed[stream] += kept
        self._room[stream] -= len(kept)
        return bool(data) and self._room[stream] > 0

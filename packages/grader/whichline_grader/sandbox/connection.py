"""Exchange bytes with one worker: a question, its reply, and what the worker prints.

This side never blocks in a write. A worker that writes faster than this side reads blocks.
"""

import os
import select

from whichline_grader.sandbox.confinement import Process
from whichline_grader.sandbox.inside.frames import MAX_HEADER_BYTES, PREFIX

CHUNK = 1 << 20
# A reply may have REPLY_BYTES, and REPLY_TIMES the bytes of the question on top.
REPLY_BYTES, REPLY_TIMES = 1 << 20, 16


class TooLongError(Exception):
    """A reply exceeds its limit."""


class Connection:
    """The streams of one worker; several connections may share `bytes_left`, of what it prints.

    A `reply` is a header and a body, unchecked, and None until it is complete; no `surplus` of bytes should follow it.
    """

    def __init__(self, process: Process, reply_bytes: int, bytes_left: dict[str, int]) -> None:
        self.process, self.reply, self.printed = process, (b"", b""), {"stdout": bytearray(), "stderr": bytearray()}
        self._bytes_left, self._reply_bytes = bytes_left, reply_bytes
        self._outgoing, self._incoming = memoryview(b""), bytearray()
        self._allowed = self.surplus = 0
        self._poll = select.poll()
        for descriptor in (process.channel.fileno(), process.stdout, process.stderr):
            self._poll.register(descriptor, select.POLLIN)

    def send(self, frame: bytes) -> None:
        """Queue a question; `exchange` writes it when the socket is ready."""
        self._outgoing, self.reply = memoryview(frame), None
        self._allowed = min(self._reply_bytes, REPLY_BYTES + REPLY_TIMES * len(frame))

    def exchange(self, seconds: float) -> None:
        """Read and write whatever is ready, unless the reply is complete; EOFError if the worker closed its end."""
        if self.reply is not None:
            return
        channel = self.process.channel.fileno()
        self._poll.modify(channel, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        for descriptor, event in self._poll.poll(seconds * 1000):
            if descriptor != channel:
                if not self._keep(descriptor, "stdout" if descriptor == self.process.stdout else "stderr"):
                    self._poll.unregister(descriptor)
            elif event == select.POLLOUT:
                self._write()
            else:
                self._read()

    def listen(self) -> None:
        """Read what the worker has printed."""
        self._keep(self.process.stdout, "stdout")
        self._keep(self.process.stderr, "stderr")

    def _write(self) -> None:
        try:
            written = self.process.channel.send(self._outgoing[:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # the worker has ended; its last reply can still be read
            written = len(self._outgoing)
        self._outgoing = self._outgoing[written:]

    def _read(self) -> None:
        try:
            data = self.process.channel.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the worker closed its end before it had read everything
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
        """Read what is in a pipe; return False if it is closed or its limit is used up.

        A worker that floods stdout blocks until the pipe is drained: draining it at once would take half a processor.
        """
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return True
        kept = data[: self._bytes_left[stream]]
        self.printed[stream] += kept
        self._bytes_left[stream] -= len(kept)
        return bool(data) and self._bytes_left[stream] > 0

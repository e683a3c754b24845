"""The frames that go to one worker and those that come back, in the same order.

Several may be on their way. This side never waits in a write, and reads only when it needs a reply: what a worker
writes besides stays in its socket, and it has to wait.
"""

import socket
from collections import deque

from cs336_staff.sandbox.inside.frames import MAX_HEADER_BYTES, PREFIX, FrameError

CHUNK = 1 << 20
# What a reply may have: an answer of small inputs may be larger than they are, one of large inputs some times as large.
REPLY_BYTES, REPLY_TIMES = 1 << 20, 16


class TooLongError(Exception):
    """A reply has more bytes than are allowed."""


class Channel:
    """One end of a non-blocking stream socket.

    Args:
        connection: the socket.
        reply_bytes: that the body of a reply may have, however large its request.

    Attributes:
        replies: those that are in, header and body, none of them checked.
        error: what is wrong with the bytes that came after them.
    """

    def __init__(self, connection: socket.socket, reply_bytes: int) -> None:
        self.replies: deque[tuple[bytearray, bytearray]] = deque()
        self.error: FrameError | TooLongError | None = None
        self._connection, self._reply_bytes = connection, reply_bytes
        self._outgoing, self._incoming = bytearray(), bytearray()
        self._queued = self._written = 0  # bytes
        # For each request without a reply, how much is written when it is, and how long its reply may be.
        self._asked: deque[tuple[int, int]] = deque()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._outgoing)

    def put(self, frame: bytes) -> None:
        """Write a request, as soon as the socket takes it."""
        self._outgoing += frame
        self._queued += len(frame)
        self._asked.append((self._queued, min(self._reply_bytes, REPLY_BYTES + REPLY_TIMES * len(frame))))

    def write(self) -> None:
        """Write what the socket takes now."""
        try:
            written = self._connection.send(memoryview(self._outgoing)[:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # what it has answered before it ended can still be read
            self._outgoing.clear()
            return
        del self._outgoing[:written]
        self._written += written

    def read(self) -> None:
        """Read what is there; EOFError if the other end is closed."""
        try:
            data = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the other end is closed, and there is something that it has not read
            data = b""
        if not data:
            raise EOFError
        self._incoming += data
        try:
            while self._incoming and self._take():
                pass
        except (FrameError, TooLongError) as error:
            self.error = error

    def _take(self) -> bool:
        """Move the first reply from what came to `replies`, if all of it is there.

        Raises:
            FrameError: it does not answer a request that was written.
            TooLongError: it is too long.
        """
        if not self._asked:
            raise FrameError(f"{len(self._incoming)} bytes after the reply")
        written, allowed = self._asked[0]
        if written > self._written:
            raise FrameError("the worker wrote before it had the request")
        if len(self._incoming) < PREFIX.size:
            return False
        header_bytes, body_bytes = PREFIX.unpack_from(self._incoming)
        if header_bytes > MAX_HEADER_BYTES or body_bytes > allowed:
            raise TooLongError("a reply with more bytes than such a call can need")
        body = PREFIX.size + header_bytes
        end = body + body_bytes
        if len(self._incoming) < end:
            return False
        self.replies.append((self._incoming[PREFIX.size : body], self._incoming[body:end]))
        del self._incoming[:end]
        self._asked.popleft()
        return True

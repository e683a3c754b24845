"""One question at a time, and what comes when nothing should."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from whichline_grader.sandbox.connection import Connection, TooLongError


def frame(body: bytes = b"") -> bytes:
    return struct.pack("<IQ", 2, len(body)) + b"{}" + body


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    out, err = os.pipe(), os.pipe()
    for read, _ in (out, err):
        os.set_blocking(read, False)
    with ours, theirs:
        worker: Any = SimpleNamespace(channel=ours, stdout=out[0], stderr=err[0])
        yield Connection(worker, 64 << 20, {"stdout": 100, "stderr": 100}), theirs
    for descriptor in (*out, *err):
        os.close(descriptor)


def exchange(connection: Connection) -> bytes:
    """The body of the reply."""
    for _ in range(1000):
        connection.exchange(0.1)
        if connection.reply:
            return connection.reply[1]
    raise AssertionError("no reply came")


def test_a_reply_may_come_in_pieces(ends: tuple[Connection, socket.socket]) -> None:
    connection, worker = ends
    for body in (b"a", b"b"):
        connection.send(frame(b"?"))
        connection.exchange(0)
        assert worker.recv(1000) == frame(b"?")
        for piece in (frame(body)[:5], frame(body)[5:13]):
            worker.sendall(piece)
            connection.exchange(0)
            assert not connection.reply
        worker.sendall(frame(body)[13:])
        assert exchange(connection) == body


def test_what_comes_besides_the_reply_is_counted(ends: tuple[Connection, socket.socket]) -> None:
    connection, worker = ends
    connection.send(frame())
    worker.sendall(frame() + frame())
    exchange(connection)
    assert connection.surplus == 14


def test_a_reply_may_be_larger_where_the_question_is(ends: tuple[Connection, socket.socket]) -> None:
    connection, worker = ends
    large = frame(bytes(2 << 20))

    def take_and_answer() -> None:
        worker.recv(14 + 200_000, socket.MSG_WAITALL)
        worker.sendall(large)

    threading.Thread(target=take_and_answer, daemon=True).start()
    connection.send(frame(bytes(200_000)))
    assert len(exchange(connection)) == 2 << 20
    connection.send(frame(bytes(1000)))
    worker.sendall(large[:100])
    with pytest.raises(TooLongError):
        exchange(connection)


def test_what_a_worker_wrote_before_it_ended_can_be_read(ends: tuple[Connection, socket.socket]) -> None:
    connection, worker = ends
    connection.send(frame(bytes(4 << 20)))
    connection.exchange(0)
    worker.recv(5)  # the rest is lost
    worker.sendall(frame(b"last"))
    worker.close()
    assert exchange(connection) == b"last"
    connection.send(frame())
    with pytest.raises(EOFError):
        exchange(connection)

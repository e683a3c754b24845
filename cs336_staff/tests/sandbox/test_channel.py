"""Frames in both directions at once, and what comes when nothing should."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from cs336_staff.sandbox.channel import Channel, TooLongError


def frame(body: bytes = b"", header: bytes = b"{}") -> bytes:
    return struct.pack("<IQ", len(header), len(body)) + header + body


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield Channel(ours, reply_bytes=1 << 20), theirs


def test_replies_come_in_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    for _ in range(3):
        channel.put(frame(b"?"))
    channel.write()
    assert worker.recv(1000) == 3 * frame(b"?")
    worker.sendall(frame(b"a") + frame(b"b") + frame(b"c")[:5])
    channel.read()
    assert [body for _, body in channel.replies] == [b"a", b"b"]
    worker.sendall(frame(b"c")[5:])
    channel.read()
    assert [body for _, body in channel.replies] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("later", "message"),
    [([frame()], "the worker wrote before it had the request"), ([], "14 bytes after the reply")],
)
def test_a_reply_too_many(ends: tuple[Channel, socket.socket], later: list[bytes], message: str) -> None:
    channel, worker = ends
    channel.put(frame())
    channel.write()
    for request in later:
        channel.put(request)
    worker.sendall(frame() + frame())
    channel.read()
    assert len(channel.replies) == 1
    assert str(channel.error) == message


def test_a_reply_may_be_larger_where_the_request_is(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends[0]._connection, ends[1]
    for size, refused in ((1000, True), (100_000, False)):
        channel = Channel(ours, reply_bytes=64 << 20)
        channel.put(frame(bytes(size)))
        while channel.wants_to_write:
            channel.write()
            theirs.recv(1 << 20)
        theirs.sendall(frame(bytes(2 << 20))[:100])
        channel.read()
        assert isinstance(channel.error, TooLongError) == refused


def test_what_a_worker_wrote_before_it_ended_can_be_read(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    channel.put(frame())
    channel.put(frame())
    channel.write()
    worker.recv(5)  # the rest is lost
    worker.sendall(frame(b"last"))
    worker.close()
    channel.put(frame())
    channel.write()
    channel.read()
    assert channel.replies.popleft()[1] == b"last"
    with pytest.raises(EOFError):
        channel.read()


def test_both_may_write_more_than_the_socket_takes(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    large = frame(bytes(1 << 20))

    def answer_before_reading() -> None:
        worker.recv(14, socket.MSG_WAITALL)
        worker.sendall(large)
        worker.recv(len(large), socket.MSG_WAITALL)
        worker.sendall(frame(b"end"))

    channel.put(frame())
    channel.put(large)
    thread = threading.Thread(target=answer_before_reading, daemon=True)
    thread.start()
    for _ in range(1_000_000):
        channel.write() if channel.wants_to_write else None
        channel.read()
        if len(channel.replies) == 2:
            break
    assert [len(body) for _, body in channel.replies] == [1 << 20, 3]

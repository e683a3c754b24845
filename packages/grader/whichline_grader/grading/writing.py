"""Write into a folder of results: every file is there whole or not at all, and one process writes at a time."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whichline.engine.errors import CourseworkError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that is there whole or not at all; one that has this content stays as it is."""
    data = content if isinstance(content, bytes) else content.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def hold(lock: Path, taken: str = "") -> Iterator[None]:
    """Hold a lock; the kernel lets go of it however this process ends, and no fork inherits it.

    If another process holds it, this waits, or raises CourseworkError with the message `taken`.
    """
    with lock.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if taken else 0))
        except OSError as error:
            raise CourseworkError(taken or f"{lock}: {error.strerror}") from None
        yield


_held: set[Path] = set()  # folders that this process writes into


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write into a folder of results while nobody else does; whoever holds this already goes on."""
    if folder in _held:
        yield
        return
    with hold(folder / ".writing"):
        _held.add(folder)
        try:
            yield
        finally:
            _held.discard(folder)

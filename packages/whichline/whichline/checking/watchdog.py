"""Warn about a test that takes long on any machine; time in which it waits for a processor does not count."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from whichline.engine.assignment import is_own_file

LONG = 10.0  # seconds; the reference needs milliseconds for any test
LOOK_EVERY = 0.1  # seconds


@contextmanager
def watchdog(seconds: float, tell: Callable[[float], None]) -> Iterator[None]:
    """Each time that the block has taken another `seconds`, call `tell`, from another thread, with the time so far.

    No call comes after the block.
    """
    dog, clock, due = _find_dog(os.getpid()), start_clock(), seconds

    def look() -> None:
        nonlocal due
        if (taken := clock()) >= due:
            tell(taken)
            due += seconds

    with dog.lock:
        before, dog.look = dog.look, look
    try:
        yield
    finally:
        with dog.lock:  # so that no call comes later
            dog.look = before


class _Dog(threading.Thread):
    """A thread that looks at the block regularly; all tests share it, since starting one takes as long as a test."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        self.look: Callable[[], None] = lambda: None  # at the block

    def run(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            with self.lock:
                self.look()


@cache
def _find_dog(process: int) -> _Dog:
    """The dog of this process; a forked process needs a new one, since it inherits no threads."""
    dog = _Dog()
    dog.start()
    return dog


def find_students_line(root: Path) -> str:
    """The student's line that the main thread has reached, as ", now in adapters.py:3"; "" if it is elsewhere."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame:
        if is_own_file(file := frame.f_code.co_filename, root):
            return f", now in {Path(file).relative_to(root).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def describe_time_limit(what: str, seconds: float, line: str) -> str:
    """Ask whether there is an endless loop."""
    endless = f"{what} has been running for {seconds:.0f} s{line}: is there an endless loop in your code?"
    return f"{endless}\nCtrl-C ends it. This is said once; time spent waiting for a busy machine does not count."


def start_clock() -> Callable[[], float]:
    """Start to measure in seconds how long the calling thread computes or sleeps.

    macOS and Windows do not say how long a thread has waited for a processor. There the clock measures the processor
    time of the process, without sleep.
    """
    waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def own() -> float:
        return time.monotonic() - int(waits.read_text().split()[1]) / 1e9

    clock = own if waits.exists() else time.process_time
    began = clock()
    return lambda: clock() - began

"""A machine that is busy with something else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy; each process has a session of its own, and so a share of the processors of its own."""
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]  # not without us
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def crowded() -> Iterator[None]:
    """Let this process, and those that it starts, share one processor with four busy ones."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with busy(4):
            yield
    finally:
        os.sched_setaffinity(0, before)

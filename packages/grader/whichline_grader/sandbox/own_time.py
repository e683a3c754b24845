"""Measure from outside the time that a process uses, independently of the load of the machine. Linux only."""

import os
import time
from contextlib import suppress

# The most that the time between two samples counts. Beyond that, this side was late, and the process may have waited
# for it.
MOST_IDLE = 0.02
CPUCLOCK_SCHED = 2


class OwnTime:
    """The time that a process uses from now on.

    It is the larger of two: the processor time of all threads, and the time on the clock minus the longest wait of a
    thread in the run queue. So load costs nothing, threads that wait for each other are no excuse, and sleep and time
    in the kernel count.

    If the kernel does not report the waits (`/proc/PID/task/TID/schedstat`), the time on the clock counts.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = ~pid << 3 | CPUCLOCK_SCHED  # as clock_getcpuclockid gives it
        self._computed = _read_processor_time(self._clock)
        self._waited = _read_waits(pid)
        self._passed, self._looked = 0.0, time.monotonic()

    def used(self) -> tuple[float, float]:
        """Sample again: the seconds of processor time, and the seconds on the clock outside the run queue."""
        now = time.monotonic()
        self._passed += min(now - self._looked, MOST_IDLE)
        self._looked = now
        waits = _read_waits(self._pid).items()
        waited = max((wait - self._waited.get(thread, 0.0) for thread, wait in waits), default=0.0)
        return _read_processor_time(self._clock) - self._computed, self._passed - waited


def _read_processor_time(clock: int) -> float:
    with suppress(OSError):  # the process has ended
        return time.clock_gettime(clock)
    return 0.0


def _read_waits(pid: int) -> dict[str, float]:
    """The seconds that each thread has spent in the run queue since it started."""
    found: dict[str, float] = {}
    with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        for task in os.scandir(f"/proc/{pid}/task"):
            with open(f"{task.path}/schedstat", encoding="ascii") as schedstat:
                found[task.name] = int(schedstat.read().split()[1]) / 1e9
    return found

"""Tell from outside what time a process has used of its own, however busy the machine is. Linux only."""

import os
import time
from contextlib import suppress

# Of the time between two looks counts what it did not compute: more than that, and this side came late, and may have
# had to answer.
MOST_IDLE = 0.02
CPUCLOCK_SCHED = 2


class OwnTime:
    """The time that a process uses, from when this is made.

    It is the larger of two: the processor time of all its threads, and the time on the clock less the longest that one
    of its threads has waited for a processor. So load costs it nothing, threads of its own that wait for each other do
    not excuse it, and whatever else keeps it from answering counts: sleep, or the kernel.

    Where the kernel does not say who has waited (`/proc/PID/task/TID/schedstat`), the time on the clock counts.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = ~pid << 3 | CPUCLOCK_SCHED  # as clock_getcpuclockid gives it
        self._computed = _processor_time(self._clock)
        self._waited = _waits(pid)
        self._passed, self._looked = 0.0, time.monotonic()

    def used(self) -> tuple[float, float]:
        """Look again: the seconds that it has computed, and those on the clock in which it waited for no processor."""
        now = time.monotonic()
        self._passed += min(now - self._looked, MOST_IDLE)
        self._looked = now
        waited = max((wait - self._waited.get(thread, 0.0) for thread, wait in _waits(self._pid).items()), default=0.0)
        return _processor_time(self._clock) - self._computed, self._passed - waited


def _processor_time(clock: int) -> float:
    with suppress(OSError):  # it has ended
        return time.clock_gettime(clock)
    return 0.0


def _waits(pid: int) -> dict[str, float]:
    """The seconds that each thread has waited for a processor since it began."""
    found: dict[str, float] = {}
    with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        for task in os.scandir(f"/proc/{pid}/task"):
            with open(f"{task.path}/schedstat", encoding="ascii") as schedstat:
                found[task.name] = int(schedstat.read().split()[1]) / 1e9
    return found

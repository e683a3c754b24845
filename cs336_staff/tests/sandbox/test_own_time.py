"""The time of a process, as it is told from outside."""

import subprocess
import sys
import time

from cs336_staff.sandbox.own_time import OwnTime
from cs336_staff.tools.under_load import busy

# A clone that shares memory and is waited for: the kernel holds its parent until it ends, in state D.
HELD = """
import ctypes
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
libc.clone(libc.sleep, ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15), 0x4100 | 17, 60)
"""


def watched(program: str, seconds: float) -> tuple[float, float, float]:
    """What a process has computed and what has passed for it, and how long it was watched."""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        time.sleep(0.3)  # to start
        own, started = OwnTime(process.pid), time.monotonic()
        computed = passed = 0.0
        while time.monotonic() < started + seconds:
            time.sleep(0.005)
            computed, passed = own.used()
        process.kill()
        return computed, passed, time.monotonic() - started


def test_sleep_counts() -> None:
    computed, passed, seconds = watched("import time; time.sleep(60)", 0.5)
    assert computed < 0.1
    assert 0.3 * seconds < passed <= seconds  # less than all, where this process came late


def test_what_the_kernel_holds_counts() -> None:
    computed, passed, seconds = watched(HELD, 0.5)
    assert computed < 0.1
    assert 0.3 * seconds < passed <= seconds  # less than all, where this process came late


def test_waiting_for_a_processor_does_not_count() -> None:
    with busy(8):
        computed, passed, seconds = watched("while True: pass", 3)
    assert max(computed, passed) < 0.8 * seconds


def test_a_process_that_has_ended_uses_nothing_more() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        own = OwnTime(process.pid)
    assert own.used()[0] <= 0

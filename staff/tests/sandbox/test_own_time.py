"""The time of a process, as it is told from outside."""

import subprocess
import sys
import time

import pytest

from staff.tests.under_load import crowded
from whichline_grader.sandbox.own_time import MOST_IDLE, OwnTime

# A clone that shares memory and is waited for: the kernel holds its parent until it ends, in state D.
HELD = """
import ctypes
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
libc.clone(libc.sleep, ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15), 0x4100 | 17, 60)
"""


def watched(program: str, seconds: float) -> tuple[float, float, float]:
    """What a process has computed and what has passed for it, and what could have passed of the time between looks."""
    with subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{program}"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has started
        own, began = OwnTime(process.pid), time.monotonic()
        computed = passed = possible = 0.0
        looked = began
        while looked < began + seconds:
            time.sleep(0.005)
            before, looked = looked, time.monotonic()
            possible += min(looked - before, MOST_IDLE)  # this process may come late
            computed, passed = own.used()
        process.kill()
        return computed, passed, possible


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", HELD], ids=["sleep", "held by the kernel"])
def test_time_counts_in_which_it_does_not_compute(program: str) -> None:
    computed, passed, possible = watched(program, 0.5)
    assert computed < 0.1
    assert 0.8 * possible < passed < 1.2 * possible


def test_waiting_for_a_processor_does_not_count() -> None:
    with crowded():
        began = time.monotonic()
        computed, passed, _ = watched("while True: pass", 1)
        seconds = time.monotonic() - began
    assert max(computed, passed) < 0.8 * seconds


def test_a_process_that_has_ended_uses_nothing_more() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        own = OwnTime(process.pid)
    assert own.used()[0] <= 0

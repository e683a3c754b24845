"""What takes long is told by its own time, on a busy machine as on an idle one."""

import shutil
import subprocess
import sys
import time

import pytest

from staff.tests.under_load import crowded
from whichline.checking.watchdog import watchdog


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_computing_and_sleeping_are_told_as_they_go_on() -> None:
    told: list[float] = []
    with watchdog(0.5, told.append):
        compute(0.5)
        time.sleep(0.9)
    time.sleep(0.2)
    assert len(told) >= 2  # more where another machine has taken time away from this one
    assert all(seconds >= 0.5 * turn for turn, seconds in enumerate(told, start=1))


def test_waiting_for_a_busy_machine_is_not() -> None:
    told: list[float] = []
    with crowded():
        began = time.monotonic()
        with watchdog(0.6, told.append):
            compute(0.3)
        assert time.monotonic() - began > 0.6
    assert told == []


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_where_the_system_does_not_count_waits_computing_alone_is() -> None:
    """macOS and Windows have no /proc."""
    code = """if True:
        import time
        from whichline.checking.watchdog import watchdog
        told, started = [], time.process_time()
        with watchdog(0.2, told.append):
            time.sleep(0.4)
            assert not told, told
            while time.process_time() < 0.59 + started: pass
        assert len(told) >= 2, told
        assert all(seconds >= 0.2 * turn for turn, seconds in enumerate(told, start=1)), told
    """
    subprocess.run(["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", sys.executable, "-c", code], check=True)

"""Fixtures that several test modules share."""

import signal
from pathlib import Path

import pytest

from cs336_staff.tools.student import Student

# In a shell's background job Ctrl-C is ignored, and would be in every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def student(tmp_path: Path) -> Student:
    """A student's folder of its own for each test, with the solution in it."""
    return Student(tmp_path)

"""Fixtures that several test modules share."""

from pathlib import Path

import pytest

from cs336_staff.tests.student import Student


@pytest.fixture
def student(tmp_path: Path) -> Student:
    """A student's folder of its own for each test, with the solution in it."""
    return Student(tmp_path)

"""Fixtures that several test modules share."""

import whichline.quick_start  # noqa: F401 (no garbage is looked for: what tests leave behind is little)

# isort: split
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from staff.tests import ROOT
from staff.tools.student import Student
from whichline.engine.assignment import serve

if TYPE_CHECKING:
    from whichline.engine.suite import Suite
    from whichline_grader.grading.suite import GradedSuite
    from whichline_grader.sandbox.confinement import Sandbox

serve(ROOT)  # as the engine's plugin does, which is off where tests run in parallel

# In a file much is started once, so that a file is tried whole by one process: those that take longest come first.
LONGEST = ("semester", "test_attacks", "test_grade", "test_watch", "test_failures", "test_check", "test_habits")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: min(place.get(name, len(place)) for name in (item.path.stem, item.path.parent.name)))


# In a shell's background job Ctrl-C is ignored, and would be in every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def student(tmp_path: Path) -> Student:
    """A student's folder of its own for each test, with the solution in it."""
    return Student(tmp_path)


@pytest.fixture(scope="session")
def graded_suite() -> "GradedSuite":
    """The suite that a class is graded with, loaded once: that takes seconds."""
    from whichline_grader.grading.suite import load_graded_suite

    return load_graded_suite(ROOT)


@pytest.fixture(scope="session")
def solved_suite() -> "Suite":
    """Both suites, to be run on adapters that staff wrote."""
    from whichline_grader.release.verify import load_solved_suite

    return load_solved_suite(ROOT)


@pytest.fixture(scope="session")
def sandbox() -> "Iterator[Sandbox]":
    """The sandbox that a class is graded in."""
    from whichline_grader.sandbox.confinement import start

    with start("bubblewrap") as sandbox:
        yield sandbox

"""What several test modules grade with."""

import pytest

from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.tests import ROOT


@pytest.fixture(scope="session")
def graded_suite() -> GradedSuite:
    """The whole suite, loaded once: that takes seconds."""
    return load_graded_suite(ROOT)

"""What several test modules grade with."""

import pytest

from cs336_kit.engine.assignment import find_root
from cs336_staff.grading.suite import GradedSuite, load_graded_suite


@pytest.fixture(scope="session")
def graded_suite(pytestconfig: pytest.Config) -> GradedSuite:
    """The whole suite, loaded once: that takes seconds."""
    return load_graded_suite(find_root(pytestconfig.rootpath))

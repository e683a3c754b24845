"""A fixture for what the solution refuses by itself."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def without_types() -> Iterator[None]:
    """Types are on when tests run and refuse most wrong arguments first; the functions must do so by themselves."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

"""What tests of the solution draw, and a fixture for what it refuses by itself."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.fixture
def without_types() -> Iterator[None]:
    """Types are on when tests run and refuse most wrong arguments first; the functions must do so by themselves."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

"""What several property tests ask of two answers."""

from typing import Any

import torch
from torch import Tensor

# Rounding errors are a few ulp in cases this small; a property that does not hold is off by far more.
ULP = 64


def assert_same(answer: Any, right: Tensor, message: str, tolerance: float = 0.0) -> None:
    """Fail with `message` unless `answer` is `right`, up to `tolerance` and `ULP` ulp of the largest element."""
    assert isinstance(answer, Tensor), f"the answer is a {type(answer).__name__}, expected a tensor"
    tolerance += ULP * torch.finfo(right.dtype).eps * max(1.0, float(right.abs().max()))
    same = (
        answer.shape == right.shape
        and answer.dtype == right.dtype
        and torch.allclose(answer.double(), right.double(), rtol=0.0, atol=tolerance)
    )
    assert same, message

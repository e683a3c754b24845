"""What the hidden tests ask of an answer, so that the diagnosis can still look at all of it, and of a worker."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import WrongAnswer

# Rounding errors are a few ulp in cases this small; a property that does not hold is off by far more.
ULP = 64

Test = TypeVar("Test", bound=Callable[..., None])


def with_memory(data_bytes: int) -> Callable[[Test], Test]:
    """While the test runs, the worker may map no more private memory than this."""

    def mark(test: Test) -> Test:
        test.memory = data_bytes  # type: ignore[attr-defined]
        return test

    return mark


def assert_right(case: Case, answer: Any, message: str) -> None:
    """Fail with `message`, and what is wrong with the numbers, unless `answer` is the right one."""
    try:
        case.check(answer)
    except WrongAnswer as wrong:
        if wrong.outcome is None:  # no tensor: no property is to blame
            raise
        raise WrongAnswer(f"{message}\n{wrong}", wrong.outcome) from None


def assert_property(case: Case, answer: Tensor, holds: bool, message: str) -> None:
    """Fail with `message` unless a property of `answer` holds."""
    case.checks.append("answer")
    if not holds:
        raise WrongAnswer(message, answer)


def is_same(answer: Any, right: Tensor, tolerance: float = 0.0) -> bool:
    """Whether `answer` is `right`, up to `tolerance` and `ULP` ulp of the largest element."""
    if not isinstance(answer, Tensor):
        return False
    tolerance += ULP * torch.finfo(right.dtype).eps * max(1.0, float(right.abs().max()))
    return (
        answer.shape == right.shape
        and answer.dtype == right.dtype
        and torch.allclose(answer.double(), right.double(), rtol=0.0, atol=tolerance)
    )

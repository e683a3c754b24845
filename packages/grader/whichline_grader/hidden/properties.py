"""Properties that hidden tests check, besides right numbers."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, same
from whichline.engine.result import Check


def assert_right(case: Case, answer: Any, message: str) -> None:
    """Fail with `message` and a description of the wrong numbers unless `answer` is right."""
    try:
        case.check(answer)
    except WrongAnswer as wrong:
        if wrong.answer is None:  # not a tensor, so the property is not to blame
            raise
        raise WrongAnswer(f"{message}\n{wrong}", Check.PROPERTY, wrong.answer) from None


def assert_near(answer: Any, right: Tensor, tolerance: Tensor, message: str) -> None:
    """Fail with `message` unless `answer` is a tensor like `right` and differs by at most `tolerance`."""
    same_form = isinstance(answer, Tensor) and (answer.shape, answer.dtype) == (right.shape, right.dtype)
    if not same_form or not same(answer, right, tolerance, of=1.0).all():
        raise WrongAnswer(message, Check.PROPERTY)


def assert_no_side_effects(case: Case, call: Callable[[], Any]) -> None:
    """Fail unless a call leaves its inputs alone, is right, and gives the same again, up to rounding."""
    with case.unchanged_inputs():
        answer = call()
        case.check(answer)
    first, again = (case.parts(each)["answer"] for each in (answer, call()))
    assert_near(again, first, 2 * case.rounding["answer"], "the same call gives a different answer the second time")

"""Properties that the hidden tests ask of an answer, besides that it is right."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, same
from whichline.engine.result import Check


def assert_right(case: Case, answer: Any, message: str) -> None:
    """Fail with `message`, and what is wrong with the numbers, unless `answer` is the right one."""
    try:
        case.check(answer)
    except WrongAnswer as wrong:
        if wrong.answer is None:  # not a tensor: no property is to blame
            raise
        raise WrongAnswer(f"{message}\n{wrong}", Check.PROPERTY, wrong.answer) from None


def assert_near(answer: Any, right: Tensor, tolerance: Tensor, message: str) -> None:
    """Fail with `message` unless `answer` is a tensor like `right`, and no further from it than `tolerance`."""
    same_form = isinstance(answer, Tensor) and (answer.shape, answer.dtype) == (right.shape, right.dtype)
    if not same_form or not same(answer, right, tolerance, of=1.0).all():
        raise WrongAnswer(message, Check.PROPERTY)


def assert_no_side_effects(case: Case, call: Callable[[], Any]) -> None:
    """Fail unless a call leaves its inputs alone, is right, and gives the same once more, to what rounding explains."""
    with case.unchanged_inputs():
        answer = call()
        case.check(answer)
    first, again = (case.parts(each)["answer"] for each in (answer, call()))
    assert_near(again, first, 2 * case.rounding["answer"], "the same call gives a different answer the second time")

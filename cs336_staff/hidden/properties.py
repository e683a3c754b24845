"""Properties that the hidden tests ask of an answer, besides that it is right."""

from typing import Any

from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.engine.result import Check


def assert_right(case: Case, answer: Any, message: str) -> None:
    """Fail with `message`, and what is wrong with the numbers, unless `answer` is the right one."""
    try:
        case.check(answer)
    except WrongAnswer as wrong:
        if wrong.answer is None:  # not a tensor: no property is to blame
            raise
        raise WrongAnswer(f"{message}\n{wrong}", Check.PROPERTY, wrong.answer) from None


def assert_near(answer: Any, right: Tensor, bound: Tensor, message: str) -> None:
    """Fail with `message` unless `answer` is a tensor like `right`, and no further from it than `bound`."""
    same_form = isinstance(answer, Tensor) and (answer.shape, answer.dtype) == (right.shape, right.dtype)
    if not same_form or not ((answer.double() - right.double()).abs() <= bound).all():
        raise WrongAnswer(message, Check.PROPERTY)


def assert_again(case: Case, again: Any, answer: Tensor) -> None:
    """Fail unless the same call gave the same answer once more, to what rounding explains."""
    assert_near(again, answer, 2 * case.bound["answer"], "the same call gives a different answer the second time")

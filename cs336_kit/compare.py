"""Holding an answer against the right one, and saying what is wrong with it."""

from typing import Any

import torch
from torch import Tensor


class WrongAnswer(AssertionError):
    """An answer is not the right one; the message says how."""


def compare(answer: Any, expected: Tensor, dtype: torch.dtype, tolerance: float, what: str = "answer") -> None:
    """Fail unless `answer` has the shape of `expected`, the dtype `dtype` and no error above `tolerance`.

    Args:
        answer: what came; it should be a tensor.
        expected: the right answer in float64.
        tolerance: the largest absolute error allowed in any element.
        what: how the message calls the answer.

    Raises:
        WrongAnswer: with the first of these that applies: no tensor, wrong shape, wrong dtype, NaN or infinity,
            wrong numbers (the largest error, where it is, and how many times the tolerance).
    """
    if not isinstance(answer, Tensor):
        hint = ": is a `return` missing?" if answer is None else ""
        raise WrongAnswer(f"the {what} is {_article(type(answer).__name__)}, expected a tensor{hint}")
    if answer.shape != expected.shape:
        raise WrongAnswer(f"the {what} has shape {tuple(answer.shape)}, expected {tuple(expected.shape)}")
    if answer.dtype != dtype:
        raise WrongAnswer(f"the {what} has dtype {_name(answer.dtype)}, expected {_name(dtype)}, that of the inputs")

    answer = answer.detach().double()
    bad = ~answer.isfinite()
    if bad.any():
        count = f"{int(bad.sum())} of {bad.numel()} places"
        raise WrongAnswer(f"the {what} is NaN or infinite in {count}, first at {_index(bad.byte())}")
    error = (answer - expected).abs()
    wrong = error > tolerance
    if wrong.any():
        where = _index(error)
        place = tuple(where)
        raise WrongAnswer(
            f"the {what} is wrong in {int(wrong.sum())} of {wrong.numel()} places\n"
            f"largest error {error[place]:.2g} at {where}: got {answer[place]:.6g}, expected {expected[place]:.6g}\n"
            f"that is {error[place] / tolerance:,.0f} times the tolerance of {tolerance:.0e}"
        )


def _index(x: Tensor) -> list[int]:
    """Where `x` is largest, the first of equals."""
    return [int(i) for i in torch.unravel_index(x.argmax(), x.shape)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _article(name: str) -> str:
    return "None" if name == "NoneType" else f"a {name}"

"""Holding an answer against the right one, and saying what is wrong with it."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


class WrongAnswer(AssertionError):
    """An answer is not the right one; the message says how.

    Args:
        message: what is wrong; lines after the first give numbers of the case.
        outcome: what is held against known mistakes: the tensor that came, or a word ("detached").
    """

    def __init__(self, message: str, outcome: Tensor | str | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome


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
    compare_form(answer, expected, dtype, what)
    wide = answer.detach().double()
    bad = ~wide.isfinite()
    if bad.any():
        count = f"{int(bad.sum())} of {bad.numel()} places"
        where = f"{count}, first at {_index(bad.byte())}"
        raise WrongAnswer("\n".join((f"the {what} is NaN or infinite in {where}", *_places(bad))), answer)
    error = (wide - expected).abs()
    wrong = error > tolerance
    if wrong.any():
        where = _index(error)
        place = tuple(where)
        lines = (
            f"the {what} is wrong in {int(wrong.sum())} of {wrong.numel()} places",
            f"largest error {error[place]:.2g} at {where}: got {wide[place]:.6g}, expected {expected[place]:.6g}",
            f"that is {error[place] / tolerance:,.0f} times the tolerance of {tolerance:.0e}",
            *_places(wrong),
        )
        raise WrongAnswer("\n".join(lines), answer)


def compare_form(answer: Any, expected: Tensor, dtype: torch.dtype, what: str) -> None:
    """Fail unless `answer` is a tensor with the shape of `expected` and the dtype `dtype`."""
    check_shape(answer, expected.shape, what)
    if answer.dtype != dtype:
        raise WrongAnswer(
            f"the {what} has dtype {_name(answer.dtype)}, expected {_name(dtype)}, that of the inputs", answer
        )


def check_shape(answer: Any, shape: Sequence[int], what: str = "answer") -> None:
    """Fail unless `answer` is a tensor of this shape."""
    if not isinstance(answer, Tensor):
        hint = ": is a `return` missing?" if answer is None else ""
        raise WrongAnswer(f"the {what} is {article(type(answer).__name__)}, expected a tensor{hint}")
    if answer.shape != tuple(shape):
        raise WrongAnswer(f"the {what} has shape {tuple(answer.shape)}, expected {tuple(shape)}", answer)


def article(name: str) -> str:
    return "None" if name == "NoneType" else f"a {name}"


def _places(wrong: Tensor) -> Iterator[str]:
    """For each axis along which some indices are right throughout: those that are not."""
    for axis, size in enumerate(wrong.shape):
        others = [other for other in range(wrong.ndim) if other != axis]
        indices = (wrong.any(others) if others else wrong).nonzero().flatten().tolist()
        if len(indices) < size:
            shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
            yield f"only at {shown} along axis {axis}, the others of its {size} are right"


def _index(x: Tensor) -> list[int]:
    """Where `x` is largest, the first of equals."""
    return [int(i) for i in torch.unravel_index(x.argmax(), x.shape)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

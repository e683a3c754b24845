"""Show the smallest part of a wrong output that can be checked on paper, never the expected output."""

from contextlib import suppress

import torch
from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, same
from whichline.engine.problem_folder import find_on_paper
from whichline.engine.result import Check

MOST = 7


def on_paper(problem: str, case: Case, error: BaseException) -> tuple[str, ...]:
    """A few lines about the first rows of a wrong output that break a rule of the problem; nothing without a rule."""
    if not isinstance(error, WrongAnswer) or error.check is not Check.ANSWER or error.answer is None:
        return ()
    expected = case.expected["answer"]
    if error.answer.shape != expected.shape or not error.answer.isfinite().all():
        return ()
    got = error.answer.detach().double()
    wrong = ~same(got, expected, case.tolerance["answer"], of=1.0)
    if not wrong.any():  # only the last digits are wrong, and nobody computes them on paper
        return ()
    nothing = max(1e-4, 16 * torch.finfo(case.dtype).eps)  # what rounding may leave of a number that is 0
    with suppress(Exception):  # the failing test must be reported even if this fails
        tell = find_on_paper(problem)
        return tuple(tell(case, got, wrong, nothing)) if tell else ()
    return ()


def describe_sum(what: str, row: Tensor, right: int, nothing: float) -> str:
    total = float(row.sum())
    if abs(total - right) < nothing:
        return f"{what} to {right}, up to rounding"
    return f"{what} to {total:.4g}, but should sum to {right}"


def describe_numbers(row: Tensor) -> str:
    shown = (round(x, 3) + 0.0 for x in row[:MOST].tolist())  # -0.0 + 0.0 is 0.0
    return "[" + ", ".join(f"{x:.3f}" for x in shown) + (", ...]" if len(row) > MOST else "]")

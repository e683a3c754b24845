"""Judge dropout on the weights of attention by what it must do, since which weights it drops is random."""

import math
from typing import Any

import torch
from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import THREE_DIGITS, WrongAnswer, near, same
from whichline.engine.result import Check

# The share of dropped weights may be so many standard deviations off; one seed in two million exceeds that.
DEVIATIONS = 5
WEIGHTS = "matrix of weights"


def check_dropout(case: Case, answer: Any) -> None:
    """Check that some weights are dropped as they should be, and that the output is computed from the others.

    The expected weights of this call in training are those without dropout. WrongAnswer for the first of these that
    applies: the wrong form; nothing is dropped; a masked key has a weight; the weights that are kept are not multiplied
    by 1 / (1 - p); the share that is dropped is not p, or weights are dropped together; the output is computed from
    other weights than those that came with it.
    """
    output, weights = case.check_form(answer).values()
    right = case.expected[WEIGHTS]
    V, p = case.original["V"], case.dropout
    # Rounding hides what happened to a weight that is nearly 0.
    counts = right > 0.1 / right.shape[-1]
    if not counts.any():  # as with a wrong attention
        raise WrongAnswer("all weights are 0, and none can be dropped", Check.PROPERTY)
    ratio = (weights / right)[counts]
    kept = ratio[ratio != 0]
    dropped = 1 - len(kept) / len(ratio)
    is_sum = near(output, weights @ V)

    if not dropped and not near(ratio, 1.0):
        raise WrongAnswer("no weight is dropped, and the weights are not those without dropout", Check.PROPERTY)
    if not dropped and is_sum:
        raise WrongAnswer(f"in training with a dropout of {p:g} no weight is dropped", Check.PROPERTY)
    if not dropped and (output == 0).any():
        raise WrongAnswer("no weight is dropped, but numbers of the output are", Check.PROPERTY)
    if (weights[right == 0] != 0).any():
        raise WrongAnswer("keys that a query may not attend to have weights other than 0", Check.PROPERTY)
    small = same(weights * (1 - p), right, case.rounding[WEIGHTS] + THREE_DIGITS * right, of=1.0) | (weights == 0)
    if dropped and not (near(kept, 1 / (1 - p)) and small[~counts].all()):
        mean = float(kept.mean())
        factor = f"{mean:.4g}" if near(kept, mean) and not near(kept, 1 / (1 - p)) else "various numbers"
        right_factor = f"1 / (1 - {p:g}) = {1 / (1 - p):.4g}"
        message = f"the weights that are kept are multiplied by {factor}, expected {right_factor}"
        kind = f"the weights that are kept should be multiplied by {right_factor}"
        raise WrongAnswer(message, Check.PROPERTY, kind=kind)
    if dropped and abs(dropped - p) > DEVIATIONS * math.sqrt(p * (1 - p) / len(ratio)):
        message = f"{dropped:.0%} of the weights are dropped, expected {p:.0%}"
        kind = f"the share of the weights that is dropped is not {p:.0%}"
        raise WrongAnswer(message, Check.PROPERTY, kind=kind)
    if dropped and not _are_independent(weights == 0, counts, p):
        message = "weights are dropped together, or in a pattern: is there a random number for each of them?"
        raise WrongAnswer(message, Check.PROPERTY)
    if not is_sum:
        raise WrongAnswer("the output is not the sum of the values times the weights that came with it", Check.PROPERTY)


def _are_independent(dropped: Tensor, counts: Tensor, p: float) -> bool:
    """Tell whether neighbours along each axis are both dropped or both kept as often as chance predicts."""
    alike = p**2 + (1 - p) ** 2
    three = p**3 + (1 - p) ** 3
    # With the covariance of the next pair, which shares a weight.
    variance = alike * (1 - alike) + 2 * (three - alike**2)
    for axis in range(dropped.ndim):
        (first, second), pairs = _pair_neighbours(dropped, axis), torch.logical_and(*_pair_neighbours(counts, axis))
        n = int(pairs.sum())
        if abs(int((first == second)[pairs].sum()) - alike * n) > DEVIATIONS * math.sqrt(variance * n):
            return False
    return True


def _pair_neighbours(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    return x.narrow(axis, 0, x.shape[axis] - 1), x.narrow(axis, 1, x.shape[axis] - 1)

"""Examine a student's attention module: what it drops and when, how the rest is scaled, and which weights it returns.

What it computes without dropout is examined as attention is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.attention import examine_attention
from cs336_kit.examination.attention_calls import Call, has_mask
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, examine, near, span

finding = partial(Finding, section="7.1 Attention as a module")
P = 0.25
DEVIATIONS = 5  # by which the share that is dropped may be off
LARGE = Call((2,), 16, 32, 4, 64)


def drops(case: Case) -> bool:
    return bool(case.training and case.dropout)


def may_drop(case: Case) -> bool:
    return bool(case.dropout) and not case.training


@dataclass
class Module:
    """The student's module. `dropped` is the share of the weights that it drops in training, 0 until that was seen."""

    ask: Ask
    dropped: float = 0.0

    def __call__(
        self, call: Call, V: Tensor, mask: Tensor | None = None, p: float = 0.0, training: bool = False, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The output and the weights, in float64.

        Raises:
            NoAnswerError: it raised, or gave no pair of tensors of the right shapes.
        """
        Q, K, _ = call.tensors()
        answer = self.ask(Q, K, V, mask, p, training, seed)
        if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(isinstance(x, Tensor) for x in answer):
            raise NoAnswerError("the answer is not a pair of tensors")
        output, weights = (x.detach().double() for x in answer)
        if output.shape != (*Q.shape[:-1], V.shape[-1]) or weights.shape != (*Q.shape[:-1], K.shape[-2]):
            raise NoAnswerError("part of the answer has a different shape")
        return output, weights

    def twice(self, p: float = 0.0, training: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The weights that made the left and the right half of the output, where both halves of V are the identity."""
        V = torch.eye(LARGE.keys).repeat(1, 2).expand(2, -1, -1)
        left, right = self(LARGE, V, None, p, training, seed)[0].split(LARGE.keys, -1)
        return left, right


def examine_attention_module(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask, dropout, training, seed)`, the most fundamental first."""
    ask = Ask(run)
    no_pair = examine([partial(pair, ask)])
    if no_pair:
        return no_pair
    student = Module(ask)
    without_dropout = examine_attention(lambda Q, K, V, mask=None: run(Q, K, V, mask, 0.0, False, 0)[0])
    experiments = (evaluation, nothing_to_drop, dropout, returned_weights, returned_in_training, seeds)
    return [*without_dropout, *examine(partial(each, student) for each in experiments)]


def pair(ask: Ask) -> Finding | None:
    """Check that the answer is a pair, the output and the weights."""
    call = Call(queries=3, keys=4, d_v=5, mask=None)
    answer = ask(*call.arguments, 0.0, False, 0)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        came = f"a {type(answer).__name__}" + (f" of {len(answer)}" if isinstance(answer, tuple | list) else "")
        measured = f"Your adapter returns {came}; it should return a pair, the output and the weights."
        return finding("module-no-pair", measured, "", "What does your module return with return_weights=True?")
    shapes = [tuple(x.shape) for x in answer if isinstance(x, Tensor)]
    if shapes == [(2, 3, 5), (2, 3, 4)]:
        return None
    measured = f"For 3 queries, 4 keys and d_v = 5 in a batch of 2 your adapter returns tensors of shape {shapes}; "
    measured += "the output has shape (2, 3, 5), the weights (2, 3, 4)."
    return finding("module-shapes", measured, "", "Which of the two comes first?")


def evaluation(student: Module) -> Finding | None:
    """Check that nothing is dropped in evaluation."""
    came, right = student.twice(0.5)[0], student.twice()[0]
    if near(came, right):
        return None
    zeros = float((came == 0).double().mean())
    measured = (
        f"In evaluation, with a dropout of 0.5, {zeros:.0%} of the weights are 0 and the others {_factor(came, right)}."
    )
    question = "Which attribute of a module do train() and eval() set? Where does your dropout look at it?"
    return finding("module-dropout-in-evaluation", measured, "", question, touches=may_drop)


def nothing_to_drop(student: Module) -> Finding | None:
    """Check that training with a dropout of 0 does not change anything."""
    came, right = student.twice(0.0, True)[0], student.twice()[0]
    if near(came, right):
        return None
    measured = f"In training, with a dropout of 0, the weights are {_factor(came, right)}; nothing should change."
    question = "What does `training` decide besides dropout?"
    return finding("module-training-changes", measured, "", question, touches=lambda c: c.training and not c.dropout)


def dropout(student: Module) -> Finding | None:
    """Find out what is dropped in training, how much of it, and what happens to the rest."""
    right, _ = student.twice()
    left, other = student.twice(P, True)
    counts = right > 1e-6  # in smaller ones rounding hides what became of them
    zeros = (left == 0) & counts
    what = partial(finding, touches=drops)
    if near(left, right):
        measured = f"In training, with a dropout of {P}, no weight is 0 and none has changed."
        question = "Call your module twice in training. Why is the answer the same?"
        return what("module-no-dropout", measured, "", question)
    place = "What is dropped: scores, weights, values or output?"
    if not near(left, other):
        id, words = ("values", "V") if _same_in_all_queries(left == 0) else ("output", "the output")
        count = int(((left == 0) != (other == 0)).sum())
        measured = (
            f"V has two halves that are equal, and in {count} places of the output one half is 0 and the other is not."
        )
        return what(f"module-dropout-on-{id}", measured, f"Dropout is applied to {words}, not to the weights.", place)
    if not zeros.any() and near(left.sum(-1), 1.0):
        measured = f"In training no weight is 0, those of a query sum to 1, and they are {_factor(left, right)}."
        means = "Something is dropped before the softmax."
        return what("module-dropout-on-scores", measured, means, place)
    student.dropped = float(zeros.sum() / counts.sum())
    kept = (left / right)[counts & ~zeros]
    measured = f"In training, with a dropout of {P}, {student.dropped:.0%} of the weights are 0"
    if not near(kept, kept.mean(), 1e-2):
        measured += f", and the others are {_factor(left, right)}; all should be {1 / (1 - P):.3g} times."
        if not near(left.sum(-1), 1.0):
            return what("module-dropout-uneven", measured, "", "What are the weights that are kept divided by?")
        question = "Should a query that has lost its largest weight look at the others more, or get less?"
        return what("module-dropout-renormalised", f"{measured} They sum to 1.", "", question)
    factor = float(kept.mean())
    measured += f" and the others {factor:.3g} times what they were; it should be {P:.0%}, and {1 / (1 - P):.3g} times."
    return _amount(student.dropped, factor, counts, zeros, measured)


def _amount(share: float, factor: float, counts: Tensor, zeros: Tensor, measured: str) -> Finding | None:
    """Check that the right share is dropped, and that the rest is multiplied by the right factor."""
    what = partial(finding, touches=drops)
    question = "What is the average of a weight over many calls? What keeps it as it was?"
    often = abs(share - P) <= DEVIATIONS * math.sqrt(P * (1 - P) / int(counts.sum()))
    if often and near(factor, 1 / (1 - P)):
        if not _same_in_all_queries(zeros):
            return None
        question = "What shape do the random numbers that you draw have?"
        return what("module-dropout-shared", "For every query the same keys are dropped.", "", question)
    if often and near(factor, 1.0):
        return what("module-dropout-not-rescaled", measured, "", question)
    if near(factor, 1 / P):
        return what("module-dropout-divides-by-p", measured, "You use p as the probability to keep.", question)
    if near(factor, 1 / (1 - P)):
        means = "Weights are kept with probability p." if abs(share - (1 - P)) < 0.1 else ""
        return what("module-dropout-share", measured, means, "Which side of your comparison should be kept?")
    return what("module-dropout-factor", measured, "", question)


def _same_in_all_queries(zeros: Tensor) -> bool:
    return bool((zeros == zeros[:, :1]).all())


def returned_weights(student: Module) -> Finding | None:
    """Check that the weights returned with the output are those that made it, in evaluation."""
    call = Call((2,), 4, 4, 4, 4)
    mask = torch.ones(4, 4).tril().bool()
    made, returned = student(call, torch.eye(4).expand(2, 4, 4), mask)
    if near(returned, made):
        return None
    question = "Multiply the weights that you return by V. Do you get the output that you return?"
    measured = (
        f"The weights that you return differ by up to {float((returned - made).abs().max()):.3g} from those that "
    )
    measured += f"made the output. They sum to {span(returned.sum(-1))}."
    if near(returned, student(call, torch.eye(4).expand(2, 4, 4))[0]):
        return finding(
            "module-weights-before-mask", measured, "They are those without the mask.", question, touches=has_mask
        )
    seen = made > 0
    gap = (returned - made.log()).where(seen, 0.0)
    if near(gap, (gap.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)).where(seen, 0.0)):
        return finding(
            "module-scores-as-weights", measured, "Their softmax would be the weights: they are scores.", question
        )
    return finding("module-other-weights", measured, "", question)


def returned_in_training(student: Module) -> Finding | None:
    """Check that the weights returned with the output are those that made it, in training."""
    V = torch.eye(LARGE.keys, LARGE.d_v).expand(2, -1, -1)
    free = student(LARGE, V)
    made, returned = student(LARGE, V, None, P, True)
    made = made[..., : LARGE.keys]
    if not student.dropped or near(returned, made) or not near(free[1], free[0][..., : LARGE.keys]):
        return None
    if not near(returned, free[1]):
        return None
    measured = f"In training {float((made == 0).double().mean()):.0%} of what made the output is 0, and "
    measured += f"{float((returned == 0).double().mean()):.0%} of the weights that you return."
    question = "Multiply the weights that you return by V. Do you get the output that you return?"
    means = "You return the weights as they were before dropout."
    return finding("module-weights-before-dropout", measured, means, question, touches=drops)


def seeds(student: Module) -> Finding | None:
    """Check that the seed, and nothing else, decides what is dropped."""
    if not student.dropped:
        return None
    first, other = student.twice(P, True, 1)[0], student.twice(P, True, 2)[0]
    student.ask.seed += 1
    again = student.twice(P, True, 1)[0]
    question = "Where does your adapter use `seed`?"
    if not near(again, first):
        measured = "Two calls with the same seed drop different weights."
        return finding("module-seed-ignored", measured, "", question, touches=drops)
    if near(other, first):
        measured = "The seeds 1 and 2 drop the same weights."
        return finding("module-seed-fixed", measured, "", question, touches=drops)
    return None


def _factor(came: Tensor, right: Tensor) -> str:
    """ "1.33 times what they were", of those that are not 0."""
    kept = (came != 0) & (right > 1e-6)
    return f"{span((came / right)[kept])} times what they were" if kept.any() else "none"

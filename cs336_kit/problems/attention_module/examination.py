"""Examine a student's attention module: what it drops and when, how the rest is scaled, and which weights it returns.

What it computes without dropout is examined as attention is. Which weights are dropped is read off the output; the
right weights without these are then compared with what is left.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import listed, near
from cs336_kit.examination.calls import DTYPES, quoted
from cs336_kit.examination.experiment import (
    Ask,
    Finding,
    Finds,
    NoAnswerError,
    about,
    examine,
    require,
    span,
)
from cs336_kit.problems.attention_module.judge import DEVIATIONS
from cs336_kit.problems.scaled_dot_product_attention.examination import examine_attention
from cs336_kit.problems.scaled_dot_product_attention.variations import Call

P = 0.25
LARGE = Call((2,), 16, 32, 4, 64)
SEEN = 1e-6  # in smaller weights rounding hides what became of them
# What may be made of the right weights W that are kept.
SCALED: tuple[tuple[str, str, Callable[[Tensor], Tensor]], ...] = (
    ("", "", lambda kept: kept / (1 - P)),
    ("dropout-not-rescaled", "The weights that are kept are left as they were.", lambda kept: kept),
    ("dropout-divides-by-p", "The weights that are kept are divided by p.", lambda kept: kept / P),
    (
        "dropout-renormalised",
        "The weights that are kept are divided by their sum.",
        lambda kept: kept / kept.sum(-1, keepdim=True),
    ),
)


def drops(case: Case) -> bool:
    return bool(case.training and case.dropout)


class Module:
    """The student's module. `dropped` is the share of the weights that it drops in training, 0 until that was seen."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.dropped = ask, 0.0

    def __call__(
        self, call: Call, V: Tensor, mask: Tensor | None = None, p: float = 0.0, training: bool = False, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The output and the weights, in float64.

        Raises:
            NoAnswerError: it raised, or part of its answer has a different shape.
        """
        Q, K, _ = call.tensors()
        output, weights = (x.detach().double() for x in self.ask(Q, K, V, mask, p, training, seed))
        if output.shape != (*Q.shape[:-1], V.shape[-1]) or weights.shape != (*Q.shape[:-1], K.shape[-2]):
            raise NoAnswerError("part of the answer has a different shape")
        return output, weights

    def twice(self, p: float = 0.0, training: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The weights that made the left and the right half of the output, where both halves of V are the identity."""
        V = torch.eye(LARGE.keys).repeat(1, 2).expand(2, -1, -1)
        left, right = self(LARGE, V, None, p, training, seed)[0].split(LARGE.keys, -1)
        return left, right


@about("module", "B1 Attention as a module")
def examine_attention_module(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask, dropout, training, seed)`, the most fundamental first."""
    student = Module(Ask(run))
    if no_attention := examine(student, (pair, steady)):
        return no_attention
    without_dropout = examine_attention(lambda Q, K, V, mask=None: run(Q, K, V, mask, 0.0, False, 0)[0], DTYPES[2:])
    unchanged = partial(nothing_dropped, 0.5, False), partial(nothing_dropped, 0.0, True)
    return [*without_dropout, *examine(student, (*unchanged, trains, dropout, returned, seeds))]


def pair(student: Module) -> Finds:
    """Check that the answer is a pair, the output and the weights."""
    answer = student.ask(*Call(queries=3, keys=4, d_v=5, mask=None).arguments, 0.0, False, 0)
    parts = answer if isinstance(answer, tuple | list) else [answer]
    came = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in parts]
    if came == [(2, 3, 5), (2, 3, 4)]:
        return None
    measured = (
        f"For 3 queries, 4 keys and d_v = 5 in a batch of 2 your adapter returns {listed(came)}; it should return two "
        "tensors, the output of shape (2, 3, 5) and the weights of shape (2, 3, 4)."
    )
    return Finding("no-pair", measured, "", "What does your module return with return_weights=True, and what first?")


def steady(student: Module) -> Finds:
    """Check that nothing is random in evaluation, with a dropout of 0."""
    one, other = (student.twice(seed=seed)[0] for seed in (1, 2))
    if near(one, other):
        return None
    zeros = float((one == 0).double().mean())
    measured = (
        f"In evaluation, with a dropout of 0, two seeds give different answers, and {zeros:.0%} of the weights are 0."
    )
    return Finding("dropout-in-evaluation", measured, "Something is drawn at random, whatever you are told.", TURNED_ON)


TURNED_ON = "Which attribute of a module do train() and eval() set? Where does your dropout look at it, and at p?"


def nothing_dropped(p: float, training: bool, student: Module) -> Finds:
    """Check that nothing changes in evaluation, or in training with a dropout of 0."""
    came, right = student.twice(p, training)[0], student.twice()[0]
    if near(came, right):
        return None
    id, where = ("training-changes", "training") if training else ("dropout-in-evaluation", "evaluation")
    measured = (
        f"In {where}, with a dropout of {p:g}, {float((came == 0).double().mean()):.0%} of the weights are 0 and the "
        f"others {tell_factor(came, right)}; nothing should change."
    )
    return Finding(
        id, measured, "", TURNED_ON, lambda case: case.training == training and bool(case.dropout) == bool(p)
    )


def trains(student: Module) -> Finds:
    """Check that a call in training gets an answer."""
    try:
        student.twice(P, True)
    except NoAnswerError as error:
        measured = f"Your module works in evaluation and fails in training, with a dropout of {P}: {quoted(error)}."
        question = "Which line runs only in training, and which shape and dtype has each tensor in it?"
        return Finding("fails-training", measured, "", question, drops, error.__cause__)
    return None


def dropout(student: Module) -> Finds:
    """Find out what is dropped in training, how much of it, and what happens to the rest."""
    (left, other), right = student.twice(P, True), student.twice()[0]
    place = "What is dropped: scores, weights, values or output?"
    if near(left, right):
        measured = f"In training, with a dropout of {P}, no weight is 0 and none has changed."
        return Finding(
            "no-dropout", measured, "", "Call your module twice in training. Why is the answer the same?", drops
        )
    if not near(left, other):
        of_values = same_in_all_queries(left == 0)
        id, words = ("values", "V") if of_values else ("output", "the output")
        count = int(((left == 0) != (other == 0)).sum())
        measured = (
            f"V has two halves that are equal, and in {count} places of the output one half is 0 and the other is not."
        )
        return Finding(
            f"dropout-on-{id}", measured, f"Dropout is applied to {words}, not to the weights.", place, drops
        )
    counts = right > SEEN
    zeros = (left == 0) & counts
    if not zeros.any():
        measured = f"In training no weight is 0, and they are {tell_factor(left, right)}."
        means = "Something is dropped before the softmax." if near(left.sum(-1), 1.0) else ""
        return Finding("dropout-on-scores", measured, means, place, drops)
    student.dropped = float(zeros.sum() / counts.sum())
    kept = right.where(left != 0, 0.0)
    id, means = next(
        ((id, says) for id, says, scaled in SCALED if near(left, scaled(kept), 1e-2)), ("dropout-factor", "")
    )
    measured = (
        f"In training, with a dropout of {P}, {student.dropped:.0%} of the weights are 0 and the others "
        f"{tell_factor(left, right)}; it should be {P:.0%}, and {1 / (1 - P):.3g} times."
    )
    question = "What is the average of a weight over many calls? What keeps it as it was?"
    deviation = math.sqrt(P * (1 - P) / int(counts.sum()))
    if not id and abs(student.dropped - P) > DEVIATIONS * deviation:
        id, question = "dropout-share", "Which side of your comparison should be kept?"
        means = (
            "Weights are kept with probability p." if abs(student.dropped - (1 - P)) <= DEVIATIONS * deviation else ""
        )
    if not id and same_in_all_queries(zeros):
        id, measured, question = (
            "dropout-shared",
            "For every query the same keys are dropped.",
            "What shape do the random numbers that you draw have?",
        )
    return Finding(id, measured, means, question, drops) if id else None


def same_in_all_queries(zeros: Tensor) -> bool:
    return bool((zeros == zeros[:, :1]).all())


def returned(student: Module) -> Finds:
    """Check that the weights returned with the output are those that made it."""
    V, mask = torch.eye(LARGE.keys).expand(2, -1, -1), torch.ones(LARGE.queries, LARGE.keys).tril(8).bool()
    made, came = student(LARGE, V, mask, P, True)
    if near(came, made):
        return None
    before, unmasked = student(LARGE, V, mask)[0], student(LARGE, V)[0]
    require(student.dropped or not near(came, before))  # else something other than the weights is dropped
    ways = (
        ("weights-before-dropout", "They are those before dropout.", near(came, before)),
        ("weights-before-mask", "They are those without the mask, and before dropout.", near(came, unmasked)),
        (
            "scores-as-weights",
            "Their softmax would be the weights: they are scores.",
            near(torch.softmax(came.where(before > 0, -math.inf), -1), before),
        ),
    )
    id, means = next(((id, says) for id, says, found in ways if found), ("other-weights", ""))
    measured = (
        f"In training the weights that you return differ by up to {float((came - made).abs().max()):.3g} from those "
        f"that made the output. They sum to {span(came.sum(-1))}."
    )
    question = "Multiply the weights that you return by V. Do you get the output that you return?"
    return Finding(id, measured, means, question)


def seeds(student: Module) -> Finds:
    """Check that the seed, and nothing else, decides what is dropped."""
    require(student.dropped)
    first, other = student.twice(P, True, 1)[0], student.twice(P, True, 2)[0]
    student.ask.seed += 1
    question = "Where does your adapter use `seed`?"
    if not near(student.twice(P, True, 1)[0], first):
        return Finding("seed-ignored", "Two calls with the same seed drop different weights.", "", question, drops)
    if near(other, first):
        return Finding("seed-fixed", "The seeds 1 and 2 drop the same weights.", "", question, drops)
    return None


def tell_factor(came: Tensor, right: Tensor) -> str:
    """ "1.33 times what they were", of those that are not 0."""
    kept = (came != 0) & (right > SEEN)
    return f"{span((came / right)[kept])} times what they were" if kept.any() else "none"

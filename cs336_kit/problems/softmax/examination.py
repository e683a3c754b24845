"""Examine a student's softmax."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import near
from cs336_kit.examination.calls import Variation, has_dtype, in_other_dtypes
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, examine, random, span
from cs336_kit.examination.table import Answers
from cs336_kit.problems.softmax.program import CALLS, TABLE

NEARLY = 0.03  # of the largest number: what a program in half precision is off by at most


@dataclass(frozen=True)
class Call:
    shape: tuple[int, ...] = (3, 4)
    dim: int = -1
    dtype: torch.dtype = torch.float32

    @property
    def arguments(self) -> tuple[Tensor, int]:
        return random(0, *self.shape).to(self.dtype), self.dim


def _shape(id: str, shape: tuple[int, ...], dim: int, question: str) -> Variation:
    return Variation(
        id,
        f"for shape {shape} and dim={dim}",
        {"shape": shape, "dim": dim},
        question,
        lambda c: c.in_features.ndim == len(shape) and c.dim % len(shape) == dim % len(shape),
    )


KEEP = "What shape does x.sum(dim) have, and what shape with keepdim=True? If you move an axis, where is it then?"
ANY = "Does your code count dimensions, although there may be any number of them?"
VARIATIONS = (
    Variation(
        "positive-dim",
        "with dim=1 instead of dim=-1",
        {"dim": 1},
        "Which numbers may `dim` be, and with which ones does your code compare it?",
        lambda case: case.dim >= 0,
    ),
    _shape("first-dim", (3, 4), 0, KEEP),
    _shape("1d", (4,), 0, ANY),
    _shape("3d-last-dim", (2, 3, 4), -1, KEEP),
    _shape("3d-middle-dim", (2, 3, 4), 1, KEEP),
    _shape("3d-first-dim", (2, 3, 4), 0, KEEP),
    _shape("3d-negative-dim", (2, 3, 4), -2, KEEP),
    _shape("4d", (2, 3, 4, 2), 2, ANY),
    *in_other_dtypes("Which of your operations does not exist for this dtype, or mixes it with another?"),
)


@about("softmax", "2 Softmax")
def examine_softmax(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(in_features, dim)`, the most fundamental first."""
    words, middle = "for shape (3, 4) and dim=-1", Call((2, 3, 4), 1)
    ask = Ask(run, "x", "dim")
    found = diagnose(ask, TABLE, Call(), words, VARIATIONS, facts, of_gradients=middle)
    # What else is wrong may be why a probability is not 0.
    return found if any("gradient" not in each.id for each in found) else [*examine(ask, (nothing_hidden,)), *found]


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The measurements of the answers to small logits, where they are not explained."""
    return (lambda ask: digits(unexplained), lambda ask: sums(unexplained)) if unexplained else ()


def nothing_hidden(ask: Ask) -> Finds:
    """Look for a probability of a logit of -inf that is not 0, and too small to be seen among others."""
    x, dim = CALLS["With logits of -inf"]
    came = ask.tensor(x.shape, x, dim)[x.isinf()].abs().max()
    if not 0 < came < NEARLY:
        return None
    measured = f"A logit of -inf gets the probability {float(came):.2g}; it should get exactly 0."
    question = "Which of your lines keeps an exponent from being -inf, or its exponential from being 0?"
    return Finding("never-0", measured, "", question, lambda case: bool(case.in_features.isinf().any()))


def digits(answers: Answers) -> Finds:
    """Measure how far the probabilities are off, where they are nearly right."""
    gaps = {call: float((answer - TABLE.expected[call]).abs().max()) for call, answer in answers.items()}
    if not all(near(answer, TABLE.expected[call], NEARLY) for call, answer in answers.items()):
        return None
    call = max(gaps, key=lambda call: gaps[call])
    measured = f"{call}, your answer is off by up to {gaps[call]:.2g}; float32 allows {torch.finfo().eps:.1g}."
    question = "Which line of your code returns a tensor with fewer digits than it was given?"
    return Finding("half-inside", measured, "", question, has_dtype(torch.float32, torch.float64))


def sums(answers: Answers) -> Finds:
    """Measure what the slices sum to, and whether those along another axis sum to 1."""
    for call, answer in answers.items():
        dim = CALLS[call][1]
        if nan := int(answer.isnan().sum()):
            measured = f"{call}, {nan} of {answer.numel()} probabilities are NaN."
            return Finding("nan", measured, "", "Which of your operations gives NaN? Print what it gets.")
        if not near(total := answer.sum(dim), 1.0, NEARLY):
            measured = f"{call}, the slices of your answer along `dim` sum to {span(total)}; each should sum to 1."
            others = [axis for axis in range(answer.ndim) if near(answer.sum(axis), 1.0)]
            measured += f" Those along axis {others[0]} do." if others else ""
            return Finding("sums", measured, "", "What do you divide by, and along which axis?")
    return None

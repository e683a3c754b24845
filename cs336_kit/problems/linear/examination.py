"""Examine a student's linear layer.

The gradient of the weights is not examined: an adapter may copy them into the layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import near
from cs336_kit.examination.calls import Variation, try_calls
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, by_name, examine, numbers, random
from cs336_kit.examination.table import Answers
from cs336_kit.problems.linear.program import TABLE

D_IN, D_OUT = 3, 2
WEIGHTS = torch.tensor([[1.1, 1.2, 1.3], [2.1, 2.2, 2.3]])
AXES = "Which axis does the layer work on? Should it matter how many come before it?"
OFFSET = "Your layer adds something that does not depend on x, as a bias does; it should have no bias."
ZEROS = "What does y = W x give when x is 0?"


@dataclass(frozen=True)
class Call:
    batch: tuple[int, ...] = (4,)
    d_out: int = D_OUT

    @property
    def arguments(self) -> tuple[Any, ...]:
        return D_IN, self.d_out, random(3, self.d_out, D_IN), random(4, *self.batch, D_IN)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, self.d_out)


def batch_of(id: str, words: str, *batch: int) -> Variation:
    return Variation(id, words, {"batch": batch}, AXES, lambda case: case.in_features.ndim == len(batch) + 1)


VARIATIONS = (
    batch_of("vector", "for a single vector of shape (3,)"),
    batch_of("3d", "for an input of shape (2, 4, 3)", 2, 4),
    batch_of("4d", "for an input of shape (2, 3, 4, 3)", 2, 3, 4),
    Variation("square", "where d_out is 3, too", {"d_out": D_IN}, "W has the shape (d_out, d_in). Which is which?"),
)


@about("linear", "4 Linear layer")
def examine_linear(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_linear`, the most fundamental first."""
    ask = by_name(run, "d_in", "d_out", "weights", "in_features")
    words = "for an input of shape (4, 3)"
    if unused := examine(ask, (unused_weights,)):
        return [*try_calls(ask, Call(), words, VARIATIONS).findings, *unused]
    found = diagnose(ask, TABLE, Call(), words, VARIATIONS, facts, (torch.float32,), ("weights",))
    # Of what is random nothing else is known; a bias may be what is random.
    return [*found, *(examine(ask, (offset,)) if any(each.id == "random" for each in found) else [])]


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The experiments, where the answers for two dimensions are explained, and where they are not."""
    return (offset, matrix, bent, batches) if unexplained else (batches,)


def unused_weights(ask: Ask) -> Finds:
    """Check that the answer depends on the weights that are passed."""
    x = random(4, D_IN)
    once, again = (ask.tensor((D_OUT,), D_IN, D_OUT, W, x) for W in (WEIGHTS, random(3, D_OUT, D_IN)))
    if not torch.equal(once, again):
        return None
    measured = f"A vector becomes {numbers(once)}, with one matrix of weights and with another."
    question = "Under which name does your module keep its weight, and does the adapter use that name?"
    return Finding("own-weights", measured, "The layer never uses the weights that it is given.", question)


def of_rows(ask: Ask, x: Tensor) -> Tensor:
    return ask.tensor((len(x), D_OUT), D_IN, D_OUT, WEIGHTS, x)


def offset(ask: Ask) -> Finds:
    """Read what zeros become."""
    came = of_rows(ask, torch.zeros(1, D_IN))[0]
    if near(came + 1, 1.0):
        return None
    return Finding("bias", f"A vector of zeros becomes {numbers(came)}; it should stay zero.", OFFSET, ZEROS)


def matrix(ask: Ask) -> Finds:
    """Read the matrix off, by which differences of inputs are multiplied: unit vectors give its columns."""
    zeros, *columns = of_rows(ask, torch.cat((torch.zeros(1, D_IN), torch.eye(D_IN))))
    came = torch.stack(columns, -1) - zeros.unsqueeze(-1)
    if near(came, WEIGHTS):
        return None
    shown, right = (f"[{', '.join(map(numbers, W))}]" for W in (came, WEIGHTS))
    measured = f"Unit vectors, less what zeros become, show the matrix {shown}; W is {right}."
    return Finding("matrix", measured, "", "Which row of W makes the first component of y?")


def bent(ask: Ask) -> Finds:
    """Check that twice an input gives twice the answer, but for what zeros become."""
    x = torch.tensor([-10.0, 20.0, -30.0])
    zeros, once, twice = of_rows(ask, torch.stack((0 * x, x, 2 * x)))
    if near(twice - zeros, 2 * (once - zeros)):
        return None
    measured = (
        f"{numbers(x)} becomes {numbers(once)}, twice that becomes {numbers(twice)}, and zeros become "
        f"{numbers(zeros)}: these do not lie on a line."
    )
    return Finding("not-linear", measured, "", "What happens to x or to y besides the product with W?")


def batches(ask: Ask) -> Finds:
    """Check that a vector in three dimensions becomes what it becomes in two."""
    x = random(4, 2, 4, D_IN)
    came = ask.tensor((2, 4, D_OUT), D_IN, D_OUT, WEIGHTS, x)
    alone = of_rows(ask, x.flatten(0, 1)).view_as(came)
    if near(came, alone):
        return None
    b, t = divmod(int((came - alone).abs().amax(-1).argmax()), 4)
    measured = (
        f"In an input of shape (2, 4, {D_IN}) the vector at [{b}, {t}] becomes {numbers(came[b, t])}; "
        f"in an input of two dimensions it becomes {numbers(alone[b, t])}."
    )
    question = "When you flatten leading dimensions, do you put them back in the same order?"
    return Finding("batch", measured, "", question, lambda case: case.in_features.ndim > 2)

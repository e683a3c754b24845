"""Asking a linear layer by which matrix it multiplies: unit vectors come back as its columns.

Whether the weights get a gradient is not asked: an adapter may copy them into the layer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import place_of_largest
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, by_name, examine
from cs336_kit.examination.words import matrix, number, numbers

SECTION = "4 Linear layer"
CLOSE = 1e-3
NAMES = ("d_in", "d_out", "weights", "in_features")
SIZES = ((3, 2), (2, 2))  # d_in and d_out; the second pair for a layer that answers to equal sizes alone

Finds = Finding | None


def examine_linear(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_linear`, the most fundamental first."""
    layer = _Layer(Ask(by_name(run, NAMES)))
    calls = try_calls(layer.ask, "linear", SECTION, Call(), "for an input of shape (4, 3)", VARIATIONS)
    layer.read()
    usual = calls.works or Call()
    contract = Contract(layer.ask, "linear", SECTION, NAMES, usual.arguments, usual.shape, (torch.float32,))
    gradients = partial(contract.gradients, without={"weights"})  # they may be copied into a layer
    experiments = (_own_weights, _bias, _other_matrix, _bent, _batch)
    found = examine((*(partial(each, layer) for each in experiments), contract.dtype, gradients))
    # A matrix that is transposed says why other sizes do not fit.
    return found if layer.transposed else [*calls.findings, *found]


@dataclass(frozen=True)
class Call:
    batch: tuple[int, ...] = (4,)

    @property
    def arguments(self) -> tuple[Any, ...]:
        d_in, d_out = SIZES[0]
        return d_in, d_out, _weights(d_in, d_out), _inputs(*self.batch)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, SIZES[0][1])


def _batch_of(id: str, words: str, *batch: int) -> Variation[Call]:
    question = "Which axis does the layer work on? Should it matter how many come before it?"
    return Variation(
        id,
        words,
        lambda call: replace(call, batch=batch),
        question,
        lambda case: case.in_features.ndim == len(batch) + 1,
    )


VARIATIONS = (
    _batch_of("vector", "for a single vector of shape (3,)"),
    _batch_of("3d", "for an input of shape (2, 4, 3)", 2, 4),
    _batch_of("4d", "for an input of shape (2, 3, 4, 3)", 2, 3, 4),
)


@dataclass
class _Layer:
    """The student's layer, and what was read off it."""

    ask: Ask
    d_in: int = SIZES[0][0]
    d_out: int = SIZES[0][1]
    columns: Tensor | None = None  # (d_in, d_out): what each unit vector becomes, less the offset
    offset: Tensor = field(default_factory=lambda: torch.zeros(()))  # what zeros become
    transposed: bool = False

    @property
    def weights(self) -> Tensor:
        return _weights(self.d_in, self.d_out)

    def arguments(self, x: Tensor, weights: Tensor | None = None) -> tuple[Any, ...]:
        return self.d_in, self.d_out, self.weights if weights is None else weights, x[..., : self.d_in]

    def rows(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Give the answers to the rows of `x`: one by one, if several at once do not get an answer."""
        try:
            return self.ask.tensor((len(x), self.d_out), *self.arguments(x, weights))
        except NoAnswerError:
            return torch.stack([self.ask.tensor((self.d_out,), *self.arguments(row, weights)) for row in x])

    def read(self) -> None:
        """Read the matrix off."""
        for self.d_in, self.d_out in SIZES:
            try:
                offset, *columns = self.rows(torch.cat((torch.zeros(1, self.d_in), torch.eye(self.d_in))))
            except NoAnswerError:
                continue
            self.offset, self.columns = offset, torch.stack(columns) - offset
            self.transposed = self.d_in == self.d_out and _same(self.columns, self.weights)
            return
        self.d_in, self.d_out = SIZES[0]


def _weights(d_in: int, d_out: int) -> Tensor:
    """W[i, j] is i.j, counted from one."""
    return torch.arange(1.0, d_out + 1).unsqueeze(-1) + torch.arange(1.0, d_in + 1) / 10


def _inputs(*batch: int) -> Tensor:
    return torch.randn(*batch, SIZES[0][0], generator=torch.Generator().manual_seed(4))


def _columns(layer: _Layer) -> Tensor:
    if layer.columns is None:
        raise NoAnswerError("the matrix could not be read off")
    return layer.columns


def _own_weights(layer: _Layer) -> Finds:
    unit = torch.eye(layer.d_in)[:1]
    came = layer.rows(unit, 1000 * layer.weights)
    if came.abs().max() > 100:
        return None
    if _same(layer.rows(unit, layer.weights / 1000), layer.weights[:, :1].T.double() / 1000):
        return Finding(
            id="linear-clamped",
            measured=f"The first unit vector becomes {numbers(came[0])} when the first column of W is "
            f"{numbers(1000 * layer.weights[:, 0])}; with weights a millionth of that it becomes that column.",
            means="Large weights are clipped before they are used.",
            question="Should a layer change the weights that it is given? When may they be clipped?",
            section=SECTION,
        )
    layer.columns = None  # of nothing that was given
    once, again = layer.rows(unit), layer.rows(unit)
    return Finding(
        id="linear-own-weights",
        measured=f"The first unit vector becomes {numbers(once[0])}, and {numbers(came[0])} with weights 1000 times as "
        f"large; it should become the first column of W, {numbers(layer.weights[:, 0])}, and 1000 times that.",
        means="The layer never gets the weights: it multiplies by those it was made with"
        + ("." if _same(once, again) else ", which are random: the same call gives a different answer each time."),
        question="Under which name does your module keep its weight, and does the adapter use that name?",
        section=SECTION,
    )


def _bias(layer: _Layer) -> Finds:
    _columns(layer)
    if layer.offset.abs().max() < CLOSE:
        return None
    return Finding(
        id="linear-bias",
        measured=f"A vector of zeros becomes {numbers(layer.offset)}; it should stay zero.",
        means="Something is added to W x: a bias.",
        question="What does y = W x give when x is 0?",
        section=SECTION,
    )


def _other_matrix(layer: _Layer) -> Finds:
    columns, W = _columns(layer), layer.weights
    if _same(columns, W.T):
        return None
    factor = float((columns * W.T).sum() / (W * W).sum())
    id, means, question = "linear-matrix", "", "Which row of W makes the first component of y?"
    if layer.transposed:
        id, means = "linear-transposed", "You multiply by W the wrong way round: y = W^T x."
        question = "W has the shape (d_out, d_in). Which of its axes meets the last axis of x?"
    elif _same(columns, W.reshape(layer.d_in, layer.d_out)):
        id, means = "linear-reshaped", "You reshape W to (d_in, d_out) where it should be transposed."
        question = "After a reshape, is the first column of the result still the first row of W?"
    elif _same(columns, factor * W.T):
        id, means = "linear-scaled", f"You multiply by {number(factor)} W."
        question = "What does y = W x give for a unit vector?"
    return Finding(
        id=id,
        measured=f"Unit vectors show the matrix {matrix(columns.T)}; W is {matrix(W)}.",
        means=means,
        question=question,
        section=SECTION,
        touches=lambda case: id != "linear-transposed" or max(case.d_in, case.d_out) > 1,
    )


def _bent(layer: _Layer) -> Finds:
    columns = _columns(layer)
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 3.0], [-10.0, 20.0, -30.0]])[:, : layer.d_in]
    came = layer.rows(x)
    straight = x.double() @ columns + came[0]
    if _same(came, straight):
        return None
    row = int((came - straight).abs().amax(-1).argmax())
    return Finding(
        id="linear-not-linear",
        measured=f"{numbers(x[row])} becomes {numbers(came[row])}; from what your layer makes of unit vectors it would "
        f"be {numbers(straight[row])}.",
        means="Something that is not linear comes before or after the product.",
        question="What happens to x or to y besides the product with W?",
        section=SECTION,
    )


def _batch(layer: _Layer) -> Finds:
    _columns(layer)
    x = _inputs(2, 4)[..., : layer.d_in]
    x[0, 0] = 0
    came = layer.ask.tensor((2, 4, layer.d_out), *layer.arguments(x))
    alone = layer.rows(x.flatten(0, 1)).unflatten(0, (2, 4))
    if _same(came - came[0, 0], alone - alone[0, 0]):  # a bias may be random
        return None
    b, t = place_of_largest((came - alone).abs().amax(-1))
    return Finding(
        id="linear-batch",
        measured=f"In an input of shape (2, 4, {layer.d_in}) the vector at [{b}, {t}] becomes {numbers(came[b, t])}; "
        f"in an input of two dimensions it becomes {numbers(alone[b, t])}.",
        means="The leading dimensions are mixed up with each other or with the features.",
        question="When you flatten leading dimensions, do you put them back in the same order?",
        section=SECTION,
        touches=lambda case: case.in_features.ndim > 2,
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs() <= CLOSE * max(1.0, float(b.abs().max()))).all())

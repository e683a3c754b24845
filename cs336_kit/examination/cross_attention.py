"""Asking multi-head attention of two sequences which of them is used for what, and how it reads its masks.

Within one sequence it is asked the same as self-attention.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, by_name, examine
from cs336_kit.examination.heads import D_MODEL, HEADS, TINY, TOKENS, Finds, Heads, Weights, normal, places
from cs336_kit.examination.multihead import LEADING, SCORES, SIGHT, WEIGHTS, gradients
from cs336_kit.examination.projections import EYE
from cs336_kit.examination.scores import known_layout
from cs336_kit.examination.words import listed, number

SECTION = "7.2 Attention between two sequences"
SEQUENCES = ("query", "key", "value")


def examine_cross_attention(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_multihead_attention`, the most fundamental first."""
    names = ("d_model", "num_heads", *WEIGHTS, *SEQUENCES, "mask")
    ask = Ask(by_name(run, names))
    heads = Heads(ask, lambda weights, x: (D_MODEL, HEADS, *weights, x, x, x), "cross", SECTION, causal=False)
    cross = _Cross(heads)
    calls = try_calls(ask, "cross", SECTION, Call(), "for a batch of 2 with 4 queries, 5 keys and no mask", VARIATIONS)
    usual = calls.works or Call()
    contract = Contract(ask, "cross", SECTION, names, usual.arguments, usual.shape, (torch.float32,))
    experiments = (
        *(partial(experiment, heads) for experiment in SIGHT),
        partial(_sources, cross),
        *(partial(experiment, heads) for experiment in SCORES),
        *(partial(_read, cross, kind) for kind in KINDS),
        *(partial(_misread, cross, name) for name in MISREAD),
        partial(_sums, cross),
        partial(_nothing, cross),
        contract.dtype,
        partial(gradients, heads, contract),
    )
    return [*calls.findings, *examine(experiments)]


@dataclass
class _Cross:
    """The student's attention between sequences, and what was found out about it."""

    heads: Heads
    mixed_up: bool = False  # query, key and value
    readings: "dict[_Kind, _Reading]" = field(default_factory=dict)

    def answer(self, weights: Weights, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        sequences = (query, key, value)
        if self.heads.needs_batch and query.ndim == 2:
            return self.answer(weights, *(x.unsqueeze(0) for x in sequences))[0]
        given = () if mask is None else (mask,)
        return self.heads.ask.tensor(query.shape, D_MODEL, HEADS, *self.heads.correct(weights), *sequences, *given)

    def seen(self, mask: Tensor) -> Tensor:
        """The weights (batch, head, query, key) under a mask, where all scores are alike."""
        if self.mixed_up:
            raise NoAnswerError("the sequences are mixed up")
        _, join = known_layout(self.heads)
        small, x = TINY * EYE, normal(HEADS, TOKENS, D_MODEL)
        weights = Weights(small, small, EYE, EYE)
        marked = torch.eye(TOKENS).view(TOKENS, 1, TOKENS, 1).expand(-1, HEADS, -1, D_MODEL)  # one token for each call
        came = torch.stack([self.answer(weights, x, x, value, mask) for value in marked], -1)
        return came.flatten(1, 2)[:, places(join)].mean(3)


@dataclass(frozen=True)
class Call:
    """The sizes of a call; `mask` is the shape of a mask that hides nothing."""

    batch: tuple[int, ...] = (2,)
    mask: tuple[int, ...] | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        query, key, value = normal(*self.shape), *(normal(*self.batch, TOKENS, D_MODEL) for _ in range(2))
        given = () if self.mask is None else (torch.ones(self.mask, dtype=torch.bool),)
        return D_MODEL, HEADS, *normal(4, D_MODEL, D_MODEL), query, key, value, *given

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, 4, D_MODEL)


def has_mask(more: int, case: Case) -> bool:
    """Say whether the mask has this many more dimensions than the query."""
    return case.mask is not None and case.mask.ndim == case.query.ndim + more


def _masked(id: str, words: str, *shape: int, more: int, batch: tuple[int, ...] = (2,)) -> Variation[Call]:
    """A call with a mask of this shape, which has so many dimensions more than the query."""
    question = "Which of these axes does the mask have, and which does it still need to meet the scores?"
    return Variation(id, words, lambda _: Call(batch, shape), question, partial(has_mask, more))


VARIATIONS: tuple[Variation[Call], ...] = (
    Variation("2d", "without a batch", lambda _: Call(()), LEADING, lambda case: case.query.ndim == 2),
    Variation("4d", "for a batch of 2 by 3", lambda _: Call((2, 3)), LEADING, lambda case: case.query.ndim > 3),
    _masked("padding", "with a padding mask of shape (2, 5)", 2, 5, more=-1),
    _masked("mask-per-batch", "with a mask of shape (2, 4, 5)", 2, 4, 5, more=0),
    _masked("mask-shared", "with a mask of shape (1, 4, 5)", 1, 4, 5, more=0),
    _masked("mask-per-head", "with a mask of shape (2, 3, 4, 5)", 2, 3, 4, 5, more=1),
    _masked("2d-padding", "with a padding mask of shape (5,) and no batch", 5, more=-1, batch=()),
    _masked(
        "4d-padding", "with a padding mask of shape (2, 3, 5) for a batch of 2 by 3", 2, 3, 5, more=-1, batch=(2, 3)
    ),
)


def _sources(cross: _Cross) -> Finds:
    """Find out which sequence makes the queries, which the keys, and which the values."""
    constant = [float(n) * torch.ones(TOKENS, D_MODEL) for n in (1, 2, 3)]
    small = TINY * EYE
    came = cross.answer(Weights(small, small, EYE, EYE), *constant)[-1, 0]
    sources = [n for n in range(3) if abs(came - n - 1) < TINY]
    if not sources:
        raise NoAnswerError("the answer is not an average of values")
    values = sources[0]
    W_Q, W_K, W_V = torch.zeros(3, D_MODEL, D_MODEL)
    W_Q[:, 0], W_K[:, 1], W_V[:, 2] = 1.0, 1.0, 1.0
    for queries, keys in product(range(3), range(3)):
        sequences = [torch.zeros(TOKENS, D_MODEL) for _ in range(3)]
        sequences[queries][:, 0] += 1.0
        sequences[keys][0, 1] += 1.0
        sequences[values][0, 2] += 1.0  # the answer is the weight of the first key
        weight = cross.answer(Weights(W_Q, W_K, W_V, EYE), *sequences)[-1, 0]
        if abs(weight - 1 / TOKENS) > TINY:
            break
    else:
        raise NoAnswerError("no weight depends on queries and keys")
    found = (queries, keys, values)
    if found == (0, 1, 2):
        return None
    cross.mixed_up = True
    cross.heads.unused |= {SEQUENCES[n] for n in range(3) if n not in found}
    known = {
        (0, 0, 0): ("self-attention", "You take keys and values from `query`, as in self-attention."),
        (0, 1, 1): ("values-from-key", "You take the values from `key`."),
        (0, 2, 1): ("keys-values-swapped", "You swap `key` and `value`."),
        (0, 2, 2): ("keys-from-value", "You take the keys from `value`."),
        (0, 0, 2): ("keys-from-query", "You take the keys from `query`."),
        (1, 0, 2): ("queries-keys-swapped", "You swap `query` and `key`."),
    }
    id, means = known.get(found, ("sequences", ""))
    queries, keys, values = (f"`{SEQUENCES[n]}`" for n in found)
    return cross.heads.finding(
        id,
        f"The answer follows {queries} as the queries, {keys} as the keys and {values} as the values; they should be "
        "`query`, `key` and `value`.",
        means,
        "Which of query, key and value does each projection take, and which two of them have the same length?",
    )


@dataclass(frozen=True)
class _Kind:
    """A kind of mask: its shape, for a batch of 3 and as many heads, so that every misreading has a legal shape."""

    id: str
    words: str
    shape: tuple[int, ...]
    more: int  # dimensions than the query has

    def mask(self) -> Tensor:
        mask = torch.rand(self.shape, generator=torch.Generator().manual_seed(7)) < 0.5
        mask[..., 0] = True  # every query sees something
        mask[..., -1] = False
        return mask

    def for_all(self, mask: Tensor) -> Tensor:
        """As (batch, head, query, key)."""
        if self.more == -1:
            mask = mask[:, None, :]
        full = mask if self.more == 1 else mask[:, None]
        return full.expand(HEADS, HEADS, TOKENS, TOKENS)


KINDS = (
    _Kind("padding", "a padding mask (batch, keys)", (HEADS, TOKENS), -1),
    _Kind("mask", "a mask (batch, queries, keys)", (HEADS, TOKENS, TOKENS), 0),
    _Kind("head-mask", "a mask (batch, heads, queries, keys)", (HEADS, HEADS, TOKENS, TOKENS), 1),
)
MISREAD = {
    "ignored": "The mask is accepted and not used.",
    "inverted": "True is read as: may not attend.",
    "along-queries": "The mask lies along the queries, not along the keys.",
    "of-first-sequence": "The mask of the first sequence is used for all of them.",
    "of-first-head": "The mask of the first head is used for all of them.",
    "meets-heads": "The batch axis of the mask is lined up with the axis of the heads.",
    "causal": "A causal mask, which nobody asked for, is applied as well.",
    "otherwise": "",
}


@dataclass(frozen=True)
class _Reading:
    """A way to read a mask, one of `MISREAD` or "" for the right one, and the weights that show it."""

    name: str
    right: Tensor
    seen: Tensor


def _read(cross: _Cross, kind: _Kind) -> Finds:
    """Find out whom a query sees under a mask of this kind."""
    if kind.more == 1 and cross.heads.averaged:
        return None
    seen, right = cross.seen(kind.mask()), kind.for_all(kind.mask()) & (cross.heads.known_seen() > TINY)
    readings = {
        "": right,
        "ignored": torch.ones_like(right),
        "inverted": ~right,
        "along-queries": right.mT,
        "of-first-sequence": right[:1].expand_as(right),
        "of-first-head": right[:, :1].expand_as(right),
        "meets-heads": right.transpose(0, 1),
        "causal": right & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(),
    }
    name = next((name for name, reading in readings.items() if _agree(seen, reading)), "otherwise")
    cross.readings[kind] = _Reading(name, right, seen)
    return None


def _misread(cross: _Cross, name: str) -> Finds:
    """List the kinds of masks that are read in this wrong way."""
    kinds = [kind for kind, reading in cross.readings.items() if reading.name == name]
    if not kinds:
        return None
    reading = cross.readings[kinds[0]]
    wrong = (reading.seen > TINY) != reading.right
    if not wrong.any():
        return None
    b, h, q, k = wrong.nonzero()[0].tolist()
    may = bool(reading.right[b, h, q, k])
    return cross.heads.finding(
        f"{kinds[0].id if len(kinds) < len(KINDS) else 'masks'}-{name}",
        f"With {kinds[0].words} that is {may} for sequence {b}, query {q} and key {k}, head {h} gives this key the "
        f"weight {number(reading.seen[b, h, q, k])}; it should be {'more than 0' if may else '0'}."
        + (f" The same happens with {listed(kind.words for kind in kinds[1:])}." if len(kinds) > 1 else ""),
        MISREAD[name],
        "The scores have axes (batch, heads, queries, keys). Which of them does this mask have? What does True mean?",
        lambda case: any(has_mask(kind.more, case) for kind in kinds),
    )


def _agree(seen: Tensor, reading: Tensor) -> bool:
    rows = reading.any(-1, keepdim=True).expand_as(reading)  # of those that see nothing, nothing is known
    return torch.equal((seen > TINY)[rows], reading[rows])


def _sums(cross: _Cross) -> Finds:
    """Check that the weights of the keys that a query may attend to sum to 1."""
    for kind, reading in cross.readings.items():
        sums = reading.seen.sum(-1)
        wrong = (sums - 1).abs() > TINY
        if reading.name or not wrong.any():
            continue
        b, h, q = wrong.nonzero()[0].tolist()
        return cross.heads.finding(
            f"{kind.id}-keeps-weight",
            f"With {kind.words}, where all scores are alike, the weights of the keys that query {q} of sequence {b} "
            f"may attend to sum to {number(sums[b, h, q])}; they should sum to 1.",
            "Keys that are hidden still take up some of the weight: their values are gone, their scores are not.",
            "What is the score of a key that is all zeros, and what does softmax make of it?",
            partial(has_mask, kind.more),
        )
    return None


def _nothing(cross: _Cross) -> Finds:
    """Read the answer to a query that may not attend to any key."""
    x, mask = normal(2, TOKENS, D_MODEL), torch.ones(2, TOKENS, dtype=torch.bool)
    mask[0] = False
    weights = Weights(*normal(4, D_MODEL, D_MODEL).unbind())
    came = cross.answer(weights, x, x, x, mask)
    misread = any(reading.name for reading in cross.readings.values())
    if misread or (came[0].isfinite().all() and came[0].abs().max() < TINY):
        return None
    return cross.heads.finding(
        "nothing",
        f"Where a sequence is padding throughout, the answer begins with {number(came[0, 0, 0])}; it should be 0.",
        "",
        "Softmax of nothing but -inf is NaN, and of equal numbers it is equal weights. What should be left of them?",
        lambda case: case.mask is not None and not bool(case.mask.any(-1).all()),
    )

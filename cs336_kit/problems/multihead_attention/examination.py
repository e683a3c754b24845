"""Examine a student's multi-head attention between two sequences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.calls import Variation
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Finding, about, by_name
from cs336_kit.problems.multihead_attention.program import TABLE
from cs336_kit.problems.multihead_self_attention.examination import DTYPES, LEADING, WEIGHTS
from cs336_kit.problems.multihead_self_attention.facts import D_MODEL, HEADS, TOKENS, facts
from cs336_kit.problems.multihead_self_attention.program import normal

USUAL = "for a batch of 2 with 4 queries, 5 keys and no mask"


@about("cross", "B2 Attention between two sequences")
def examine_cross_attention(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_multihead_attention`, the most fundamental first."""
    ask = by_name(run, "d_model", "num_heads", *WEIGHTS, "query", "key", "value", "mask")
    return diagnose(ask, TABLE, Call(), USUAL, VARIATIONS, partial(facts, with_itself, False), DTYPES)


def with_itself(weights: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
    return D_MODEL, HEADS, *weights, x, x, x


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


def _masked(id: str, words: str, *shape: int, more: int, batch: tuple[int, ...] = (2,)) -> Variation:
    """A call with a mask of this shape, which has so many dimensions more than the query."""
    question = "Which of these axes does the mask have, and which does it still need to meet the scores?"
    return Variation(id, words, {"batch": batch, "mask": shape}, question, partial(has_mask, more))


VARIATIONS = (
    Variation("2d", "without a batch", {"batch": (), "mask": None}, LEADING, lambda case: case.query.ndim == 2),
    Variation(
        "4d", "for a batch of 2 by 3", {"batch": (2, 3), "mask": None}, LEADING, lambda case: case.query.ndim > 3
    ),
    _masked("padding", "with a padding mask of shape (2, 5)", 2, 5, more=-1),
    _masked("mask-per-batch", "with a mask of shape (2, 4, 5)", 2, 4, 5, more=0),
    _masked("mask-shared", "with a mask of shape (1, 4, 5)", 1, 4, 5, more=0),
    _masked("mask-per-head", "with a mask of shape (2, 3, 4, 5)", 2, 3, 4, 5, more=1),
    _masked("2d-padding", "with a padding mask of shape (5,) and no batch", 5, more=-1, batch=()),
    _masked(
        "4d-padding", "with a padding mask of shape (2, 3, 5) for a batch of 2 by 3", 2, 3, 5, more=-1, batch=(2, 3)
    ),
)

"""A usual call of attention, and what may be different in a call."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.calls import Variation, in_other_dtypes


def has_mask(case: Case) -> bool:
    return case.mask is not None


def has_no_mask(case: Case) -> bool:
    return case.mask is None


def has_padding(case: Case) -> bool:
    return has_mask(case) and 1 in case.mask.shape


def hides_all(case: Case) -> bool:
    """Say whether some query may not attend to any key."""
    return has_mask(case) and not bool(case.mask.any(-1).all())


def touches_shared_keys(case: Case) -> bool:
    return case.Q.shape[:-2] != case.K.shape[:-2]


@dataclass(frozen=True)
class Call:
    """The sizes of a call; `mask` names which axes it has."""

    batch: tuple[int, ...] = (2,)
    queries: int = 3
    keys: int = 3
    d_k: int = 4
    d_v: int = 4
    kv_batch: tuple[int, ...] | None = None
    mask: str | None = "queries keys"
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return (*map(max, self.batch, self.batch_of_keys), self.queries, self.d_v)

    @property
    def batch_of_keys(self) -> tuple[int, ...]:
        return self.batch if self.kv_batch is None else self.kv_batch

    @property
    def arguments(self) -> tuple[Any, ...]:
        Q, K, V = (x.to(self.dtype) for x in self.tensors())
        return (Q, K, V) if self.mask == "not given" else (Q, K, V, self.allowed())

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        keys = (*self.batch_of_keys, self.keys)
        shapes = ((*self.batch, self.queries, self.d_k), (*keys, self.d_k), (*keys, self.d_v))
        Q, K, V = (torch.randn(shape, generator=generator) for shape in shapes)
        return Q, K, V

    def allowed(self) -> Tensor | None:
        """A mask that hides the last key from the first query, or from all."""
        if self.mask in (None, "not given"):
            return None
        sizes = {"batch": math.prod(self.batch[:1]), "queries": self.queries, "keys": self.keys, "1": 1}
        mask = torch.ones([sizes[axis] for axis in self.mask.split()], dtype=torch.bool)
        if self.keys > 1:
            mask[..., :1, -1] = False
        return mask


LEADING = "Which axes does attention work on? Should it matter how many come before them?"
BROADCAST = "How does broadcasting line up an axis of size 1, and does your code keep it?"
WIDTHS = "Which of Q, K and V do the sizes in this line come from?"
WITHOUT_MASK = Variation(
    "without-mask",
    "with mask=None",
    {"mask": None},
    "Which keys may a query attend to when there is no mask?",
    has_no_mask,
)
VARIATIONS = (
    Variation(
        "mask-per-batch",
        "with a mask of shape (batch, queries, keys)",
        {"mask": "batch queries keys"},
        BROADCAST,
        lambda case: has_mask(case) and case.mask.ndim > 2,
    ),
    WITHOUT_MASK,
    Variation(
        "mask-not-given",
        "when no mask is passed",
        {"mask": "not given"},
        "What value does the parameter `mask` have when nobody passes one?",
        has_no_mask,
    ),
    Variation("2d", "for (positions, d)", {"batch": ()}, LEADING, lambda case: case.Q.ndim == 2),
    Variation("4d", "for (batch, heads, positions, d)", {"batch": (2, 3)}, LEADING, lambda c: c.Q.ndim > 3),
    Variation(
        "other-keys",
        "with more keys than queries",
        {"keys": 5, "d_k": 5, "d_v": 5},
        "What shape should the scores have, and what shape do yours have?",
        lambda case: case.Q.shape[-2] != case.K.shape[-2],
    ),
    Variation(
        "other-d_v",
        "with d_v different from d_k",
        {"d_v": 6},
        WIDTHS,
        lambda case: case.Q.shape[-1] != case.V.shape[-1],
    ),
    Variation("padding", "with a mask of shape (batch, 1, keys)", {"mask": "batch 1 keys"}, BROADCAST, has_padding),
    Variation(
        "shared-keys",
        "where the heads share one K and V of shape (batch, 1, positions, d)",
        {"batch": (2, 3), "kv_batch": (2, 1)},
        BROADCAST,
        touches_shared_keys,
    ),
    Variation(
        "shared-queries",
        "where one Q of shape (batch, 1, positions, d) meets several heads of K and V",
        {"batch": (2, 1), "kv_batch": (2, 3)},
        "Which of Q, K and V has the leading axes of the answer, after broadcasting?",
        touches_shared_keys,
    ),
    Variation("one-query", "for one query", {"queries": 1}, BROADCAST, lambda c: c.Q.shape[-2] == 1),
    Variation("batch-of-one", "for a batch of one", {"batch": (1,)}, BROADCAST, lambda c: 1 in c.Q.shape),
    *in_other_dtypes(
        "Which tensors meet in the line that raises, which dtype has each, and in which should they be computed?"
    ),
)

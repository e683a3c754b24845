"""Test cases for attention, and masks that other problems use, too."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis, draw_size
from whichline_grader.authoring.cases import FULL_PRECISION, HALF_PRECISION


def inputs(
    *batch: int,
    queries: int = 5,
    keys: int = 7,
    d_k: int = 11,
    d_v: int = 13,
    kv_batch: tuple[int, ...] | None = None,
    mask: str | None = None,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Callable[[Generator], Inputs]:
    """Draw inputs; `mask` names one of `MASKS`.

    `scale` is the spread of the logits of one query, `shift` the spread of the queries' mean logits.
    """

    def draw(generator: Generator) -> Inputs:
        others = batch if kv_batch is None else kv_batch
        Q = torch.randn(*batch, queries, d_k, generator=generator) * scale
        K = torch.randn(*others, keys, d_k, generator=generator)
        V = torch.randn(*others, keys, d_v, generator=generator)
        if shift:
            # The first component of every key is 1, so a query's first component shifts all its logits.
            K[..., 0] = 1.0
            Q[..., 0] *= shift * math.sqrt(d_k)
        drawn = None if mask is None else MASKS[mask](batch, queries, keys, generator)
        return {"Q": Q.to(dtype), "K": K.to(dtype), "V": V.to(dtype), "mask": drawn}

    return draw


def random_mask(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Draw a mask that is True in about half its elements, and in at least one of each row."""
    mask = torch.rand(shape, generator=generator) < 0.5
    some_key = torch.randint(shape[-1], (*shape[:-1], 1), generator=generator)
    return mask.scatter(-1, some_key, torch.ones_like(mask[..., :1]))


def _draw_padding_mask(batch: tuple[int, ...], queries: int, keys: int, generator: Generator) -> Tensor:
    """Draw a mask (batch, 1, ..., 1, keys) for sequences of different lengths, one of them without padding."""
    lengths = torch.randperm(keys, generator=generator)[: batch[0]] + 1
    lengths[-1] = keys
    return (torch.arange(keys) < lengths.unsqueeze(-1)).view(batch[0], *(1 for _ in batch[1:]), 1, keys)


def _draw_mask_with_empty_rows(batch: tuple[int, ...], queries: int, keys: int, generator: Generator) -> Tensor:
    mask = random_mask((queries, keys), generator)
    mask[1] = False
    mask[-1] = False
    return mask


MASKS: dict[str, Callable[[tuple[int, ...], int, int, Generator], Tensor]] = {
    "causal": lambda batch, queries, keys, generator: torch.ones(queries, keys, dtype=torch.bool).tril(),
    "random": lambda batch, queries, keys, generator: random_mask((queries, keys), generator),
    "full": lambda batch, queries, keys, generator: random_mask((*batch, queries, keys), generator),
    "padding": _draw_padding_mask,
    "empty rows": _draw_mask_with_empty_rows,
    # Every block of queries but the first sees nothing of the first block of keys.
    "later keys": lambda batch, queries, keys, generator: torch.ones(queries, keys, dtype=torch.bool).triu(),
}


def by_hand(generator: Generator) -> Inputs:
    """The example that docs/assignment.md computes by hand."""
    X = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    return {"Q": X, "K": X.clone(), "V": X.clone(), "mask": None}


PUBLIC = {
    "attention": {
        "3d-no-mask": inputs(2),
        "3d-causal": inputs(2, queries=7, mask="causal"),
        "3d-random-mask": inputs(2, queries=7, mask="random"),
        "3d-more-keys": inputs(2, d_k=16, d_v=20, mask="random"),
        "3d-more-queries": inputs(2, queries=11, mask="random"),
        "3d-mask-per-batch": inputs(2, mask="full"),
        "3d-padding": inputs(3, mask="padding"),
        "3d-square": inputs(4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
        "3d-square-causal": inputs(4, queries=4, keys=4, d_k=4, d_v=4, mask="causal"),
        "3d-large-logits": inputs(2, mask="random", scale=1e4),
        "3d-zero-queries": inputs(2, mask="random", scale=0.0),
        "3d-queries-far-apart": inputs(2, mask="random", shift=1e4, dtype=torch.float64),
        "3d-queries-very-far-apart": inputs(2, mask="random", shift=1e10, dtype=torch.float64),
        "3d-one-token": inputs(2, queries=1, keys=1, mask="random"),
        "4d-no-mask": inputs(2, 3),
        "4d-causal": inputs(2, 3, queries=7, mask="causal"),
        "4d-random-mask": inputs(2, 3, queries=7, mask="random"),
        "4d-more-keys": inputs(2, 3, d_k=16, d_v=20, mask="random"),
        "4d-mask-per-head": inputs(2, 3, mask="full"),
        "4d-padding": inputs(2, 3, mask="padding"),
        "4d-one-key-value-head": inputs(2, 3, kv_batch=(2, 1), mask="random"),
        "4d-one-query-head": inputs(2, 1, kv_batch=(2, 3), mask="random"),
        "4d-square": inputs(4, 4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
        "other-by-hand": by_hand,
        "other-no-batch": inputs(mask="random"),
        "other-five-batch-dims": inputs(2, 1, 3, 1, 2, mask="random"),
    },
    "attention-half-precision": {name: inputs(2, mask="random", dtype=dtype) for name, dtype in HALF_PRECISION.items()},
    "attention-last-digit": {name: inputs(2, mask="random", dtype=dtype) for name, dtype in FULL_PRECISION.items()},
    "attention-gradients": {
        "3d-no-mask": inputs(2),
        "3d-random-mask": inputs(2, mask="random"),
        "3d-nothing-to-attend-to": inputs(2, mask="empty rows"),
        "4d-causal": inputs(2, 3, queries=7, mask="causal"),
    },
    "attention-nothing": {"3d": inputs(2, mask="empty rows")},
}


HIDDEN = {
    "attention": {
        "3d-no-mask": inputs(3, queries=7, keys=11, d_k=5, d_v=2),
        "3d-causal": inputs(3, queries=11, keys=11, d_k=5, mask="causal"),
        "3d-random-mask": inputs(3, queries=11, keys=13, d_k=17, d_v=3, mask="random"),
        "3d-mask-per-batch": inputs(5, queries=3, keys=11, mask="full"),
        "3d-padding": inputs(5, queries=3, keys=11, mask="padding"),
        "3d-square": inputs(6, queries=6, keys=6, d_k=6, d_v=6, mask="random"),
        "3d-large-logits": inputs(3, queries=7, keys=11, mask="random", scale=3e4),
        "3d-zero-queries": inputs(3, queries=7, keys=11, d_k=5, d_v=3, mask="random", scale=0.0),
        "3d-queries-far-apart": inputs(
            3, queries=7, keys=5, d_k=3, d_v=2, mask="random", shift=2e4, dtype=torch.float64
        ),
        "3d-queries-very-far-apart": inputs(
            3, queries=7, keys=5, d_k=3, d_v=2, mask="random", shift=3e10, dtype=torch.float64
        ),
        "3d-one-dimension": inputs(3, d_k=1, d_v=1, mask="random"),
        "4d-no-mask": inputs(3, 2, queries=7, keys=11, d_k=5, d_v=3),
        "4d-causal": inputs(3, 2, queries=11, keys=11, d_k=5, mask="causal"),
        "4d-random-mask": inputs(3, 2, queries=11, keys=13, d_k=17, d_v=3, mask="random"),
        "4d-mask-per-head": inputs(3, 5, queries=2, keys=11, mask="full"),
        "4d-padding": inputs(5, 2, queries=3, keys=11, mask="padding"),
        "4d-one-key-value-head": inputs(3, 5, kv_batch=(3, 1), queries=3, mask="random"),
        "4d-one-query-head": inputs(3, 1, kv_batch=(3, 5), queries=3, mask="random"),
        "4d-square": inputs(6, 6, queries=6, keys=6, d_k=6, d_v=6, mask="random"),
        "other-no-batch": inputs(queries=11, keys=3, mask="random"),
        "other-five-batch-dims": inputs(1, 3, 2, 1, 2, queries=3, keys=5, mask="random"),
    },
    "attention-half-precision": {
        name: inputs(3, queries=7, keys=101, mask="random", dtype=dtype) for name, dtype in HALF_PRECISION.items()
    },
    "attention-last-digit": {
        name: inputs(3, queries=7, keys=11, mask="random", dtype=dtype) for name, dtype in FULL_PRECISION.items()
    },
    "attention-gradients": {
        "3d-causal": inputs(3, queries=11, keys=11, d_k=5, mask="causal"),
        "4d-random-mask": inputs(3, 2, queries=3, keys=5, mask="random"),
        "3d-random-mask": inputs(3, mask="random"),
        "3d-nothing-to-attend-to": inputs(3, queries=7, mask="empty rows"),
    },
    "attention-nothing": {
        "3d": inputs(3, queries=7, keys=3, mask="empty rows"),
        "4d": inputs(3, 2, queries=7, keys=11, mask="empty rows"),
    },
}


def draw_sizes(random: Spread) -> dict[str, Any]:
    return {size: draw_size(random) for size in ("queries", "keys", "d_k", "d_v")}


def _draw_case(batch: Batch, masks: tuple[str | None, ...], gradients: tuple[str, ...], random: Spread) -> CaseSpec:
    drawing = inputs(*batch(random), **draw_sizes(random), mask=random.choice(masks))
    return CaseSpec("attention", "run_scaled_dot_product_attention", drawing, gradients)


def kinds(
    masks: tuple[str, ...] = ("causal", "random", "full"),
    leading: Mapping[str, Batch] = LEADING,
    gradients: tuple[str, ...] = (),
) -> Kinds:
    return {kind: partial(_draw_case, batch, masks, gradients) for kind, batch in leading.items()}


def kinds_without_a_mask(gradients: tuple[str, ...] = ()) -> Kinds:
    return {"no-mask": partial(_draw_case, draw_one_axis, (None,), gradients)}

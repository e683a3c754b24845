"""Test cases for blockwise attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator

from problems.scaled_dot_product_attention.staff import cases as attention
from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis
from whichline_grader.authoring.cases import FULL_PRECISION, HALF_PRECISION


def inputs(*batch: int, block_size: int | None, d_k: int = 3, d_v: int = 2, **rest: Any) -> Callable[..., Inputs]:
    """Draw inputs; `rest` is as for attention. Vectors are short to keep the many fixtures small."""
    draw = attention.inputs(*batch, d_k=d_k, d_v=d_v, **rest)
    return lambda generator: draw(generator) | {"block_size": block_size}


def by_hand(generator: Generator) -> Inputs:
    """The online softmax that docs/bonus.md computes by hand: one query, two blocks of two keys."""
    K, V = torch.tensor([[1.0], [0.0], [2.0], [1.0]]), torch.tensor([[4.0], [2.0], [1.0], [3.0]])
    return {"Q": torch.ones(1, 1), "K": K, "V": V, "mask": None, "block_size": 2}


PUBLIC = {
    "blockwise": {
        "by-hand": by_hand,
        "blocks-of-1": inputs(2, block_size=1, mask="random"),
        "blocks-of-7": inputs(2, queries=11, keys=13, block_size=7, mask="random"),
        "size-not-given": inputs(2, block_size=None, mask="random"),
        "one-block": inputs(2, block_size=64, mask="random"),
        "no-mask": inputs(2, block_size=3),
        "causal": inputs(2, queries=11, keys=11, block_size=3, mask="causal"),
        "first-block-hidden": inputs(2, queries=7, keys=11, block_size=2, mask="later keys"),
        "nothing-to-attend-to": inputs(2, block_size=2, mask="empty rows"),
        "padding": inputs(3, block_size=2, mask="padding"),
        "mask-per-batch": inputs(2, queries=7, block_size=3, mask="full"),
        "more-queries": inputs(2, queries=11, keys=5, block_size=3),
        "one-key-value-head": inputs(2, 3, kv_batch=(2, 1), block_size=3, mask="random"),
        "one-query-head": inputs(2, 1, kv_batch=(2, 3), block_size=3, mask="random"),
        "large-logits": inputs(2, keys=11, block_size=2, mask="random", scale=100.0),
        "queries-far-apart": inputs(2, block_size=3, mask="random", shift=1e4, dtype=torch.float64),
        "square": inputs(4, queries=4, keys=4, d_k=4, d_v=4, block_size=2, mask="random"),
        "no-batch": inputs(block_size=3, mask="random"),
    },
    "blockwise-last-digit": {
        name: inputs(2, keys=101, block_size=7, mask="random", dtype=dtype)
        for name, dtype in (HALF_PRECISION | FULL_PRECISION).items()
    },
    "blockwise-gradients": {
        "no-mask": inputs(2, block_size=3),
        "first-block-hidden": inputs(2, block_size=2, mask="later keys"),
        "nothing-to-attend-to": inputs(2, block_size=2, mask="empty rows"),
    },
}


HIDDEN = {
    "blockwise": {
        "blocks-of-1": inputs(3, queries=3, keys=5, block_size=1, mask="random"),
        "blocks-of-5": inputs(3, queries=13, keys=11, block_size=5, mask="random"),
        "size-not-given": inputs(3, queries=7, keys=11, block_size=None, mask="random"),
        "one-block": inputs(3, queries=7, keys=11, block_size=100),
        "causal": inputs(3, queries=13, keys=13, block_size=5, mask="causal"),
        "first-block-hidden": inputs(3, queries=11, keys=13, block_size=3, mask="later keys"),
        "nothing-to-attend-to": inputs(3, queries=7, keys=5, block_size=2, mask="empty rows"),
        "padding": inputs(5, queries=3, keys=11, block_size=2, mask="padding"),
        "mask-per-head": inputs(3, 2, queries=5, keys=11, block_size=3, mask="full"),
        "one-key-value-head": inputs(3, 5, queries=3, kv_batch=(3, 1), block_size=2, mask="random"),
        "one-query-head": inputs(3, 1, queries=3, kv_batch=(3, 5), block_size=2, mask="random"),
        "large-logits": inputs(3, queries=5, keys=13, block_size=3, mask="random", scale=100.0),
        "queries-far-apart": inputs(3, block_size=2, mask="random", shift=1e3, dtype=torch.float64),
        "square": inputs(6, queries=6, keys=6, d_k=6, d_v=6, block_size=4, mask="random"),
        "one-dimension": inputs(queries=7, keys=11, d_k=1, d_v=1, block_size=2),
    },
    "blockwise-last-digit": {
        name: inputs(3, keys=103, block_size=11, mask="random", dtype=dtype)
        for name, dtype in (HALF_PRECISION | FULL_PRECISION).items()
    },
    "blockwise-gradients": {
        "causal": inputs(3, queries=11, keys=11, block_size=3, mask="causal"),
        "first-block-hidden": inputs(3, queries=5, keys=11, block_size=3, mask="later keys"),
        "nothing-to-attend-to": inputs(3, queries=7, keys=5, block_size=2, mask="empty rows"),
    },
}


def _draw_case(batch: Batch, masks: tuple[str | None, ...], random: Spread) -> CaseSpec:
    axes, sizes, block_size = batch(random), attention.draw_sizes(random), random.choice((2, 1, 3, 100, None))
    mask, scale = random.choice(masks), random.choice((1.0, 100.0))
    drawing = inputs(*axes, **sizes, block_size=block_size, mask=mask, scale=scale)
    return CaseSpec("blockwise", "run_blockwise_attention", drawing)


def kinds() -> Kinds:
    kinds = {kind: partial(_draw_case, batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(_draw_case, draw_one_axis, (None,))}

"""Test cases for the attention module."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator

from problems.scaled_dot_product_attention.staff import cases as attention
from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis


def inputs(*batch: int, dropout: float = 0.0, training: bool = True, **rest: Any) -> Callable[[Generator], Inputs]:
    """Draw inputs; `rest` is as for attention."""
    drawing = attention.inputs(*batch, **rest)

    def draw(generator: Generator) -> Inputs:
        seed = int(torch.randint(1000, (), generator=generator))
        return drawing(generator) | {"dropout": dropout, "training": training, "seed": seed}

    return draw


PUBLIC = {
    "attention_module": {
        "3d-no-mask": inputs(2),
        "3d-padding": inputs(3, mask="padding"),
        "3d-random-mask": inputs(2, mask="random", dropout=0.5, training=False),
        "3d-large-logits": inputs(2, mask="random", scale=1e4),
        "3d-nothing": inputs(2, mask="empty rows", dropout=0.5, training=False),
        "3d-square": inputs(4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
        "3d-in-float64": inputs(2, mask="random", dtype=torch.float64),
        "4d-no-mask": inputs(2, 3, dropout=0.5, training=False),
        "4d-mask-per-head": inputs(2, 3, mask="full", dropout=0.3, training=False),
    },
    "attention_module-gradients": {"3d-random-mask": inputs(2, mask="random")},
    "attention_module-dropout": {
        "3d-no-mask": inputs(4, queries=31, keys=37, dropout=0.25),
        "4d-padding": inputs(3, 2, queries=31, keys=37, mask="padding", dropout=0.4),
    },
}


HIDDEN = {
    "attention_module": {
        "3d-no-mask": inputs(3, queries=7, keys=11, d_k=5),
        "3d-causal": inputs(3, queries=11, keys=11, d_k=5, mask="causal", dropout=0.5, training=False),
        "3d-nothing": inputs(3, queries=7, keys=3, mask="empty rows"),
        "4d-mask-per-head": inputs(3, 5, queries=2, keys=11, mask="full"),
        "4d-padding": inputs(5, 2, queries=3, keys=11, mask="padding", dropout=0.5, training=False),
    },
    "attention_module-dropout": {
        "3d-causal": inputs(3, queries=41, keys=41, d_k=5, mask="causal", dropout=0.15),
        "4d-no-mask": inputs(3, 2, queries=23, keys=29, dropout=0.6),
    },
}


def _draw_case(batch: Batch, masks: tuple[str | None, ...], random: Spread) -> CaseSpec:
    """Draw a case in which nothing is dropped, since which weights are dropped differs between programs."""
    dropout, training = random.choice(((0.0, True), (0.5, False)))
    axes, sizes, mask = batch(random), attention.draw_sizes(random), random.choice(masks)
    drawing = inputs(*axes, **sizes, mask=mask, dropout=dropout, training=training)
    return CaseSpec("attention_module", "run_scaled_dot_product_attention_module", drawing)


def kinds() -> Kinds:
    kinds = {kind: partial(_draw_case, batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(_draw_case, draw_one_axis, (None,))}

"""Test cases for attention between two sequences."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from problems.multihead_self_attention.staff.cases import draw_weights
from problems.scaled_dot_product_attention.staff.cases import random_mask
from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis, draw_size


def inputs(
    *batch: int, queries: int = 5, keys: int = 7, d_model: int = 24, num_heads: int = 3, mask: str | None = None
) -> Callable[[Generator], Inputs]:
    """Draw inputs; `mask` names one of `HEAD_MASKS`."""

    def draw(generator: Generator) -> Inputs:
        inputs: Inputs = {"d_model": d_model, "num_heads": num_heads}
        inputs |= draw_weights(d_model, generator)
        lengths = {"query": queries, "key": keys, "value": keys}
        inputs |= {name: torch.randn(*batch, n, d_model, generator=generator) for name, n in lengths.items()}
        return inputs | {"mask": mask and HEAD_MASKS[mask](batch, num_heads, queries, keys, generator)}

    return draw


# Kinds of masks, each drawn from the batch-like dimensions and the numbers of heads, queries and keys.
HEAD_MASKS: dict[str, Callable[[tuple[int, ...], int, int, int, Generator], Tensor]] = {
    "padding": lambda batch, heads, queries, keys, generator: random_mask((*batch, keys), generator),
    "full": lambda batch, heads, queries, keys, generator: random_mask((*batch, queries, keys), generator),
    "same for all": lambda batch, heads, queries, keys, generator: random_mask(
        (*(1 for _ in batch), queries, keys), generator
    ),
    "per head": lambda batch, heads, queries, keys, generator: random_mask((*batch, heads, queries, keys), generator),
    # The first sequence is all padding.
    "nothing": lambda batch, heads, queries, keys, generator: torch.arange(batch[0]).unsqueeze(-1).expand(-1, keys) > 0,
}


GRADIENTS = (*(f"{name}_proj_weight" for name in "qkvo"), "query", "key", "value")
PUBLIC = {
    "multihead_attention": {
        "no-mask": inputs(2),
        "padding": inputs(3, mask="padding"),
        "padding-throughout": inputs(2, mask="nothing"),
        "full-mask": inputs(2, mask="full"),
        "same-mask-for-all": inputs(2, mask="same for all"),
        "mask-per-head": inputs(2, mask="per head"),
        "no-batch": inputs(),
        "no-batch-padding": inputs(mask="padding"),
        "two-batch-dims": inputs(2, 5, mask="padding"),
        "one-head": inputs(2, num_heads=1, mask="padding"),
        "heads-of-one": inputs(2, d_model=5, num_heads=5, mask="full"),
        "one-query": inputs(2, queries=1, mask="padding"),
        "square": inputs(4, queries=4, keys=4, d_model=16, num_heads=4),
        "square-padding": inputs(4, queries=4, keys=4, d_model=16, num_heads=4, mask="padding"),
        "square-full-mask": inputs(4, queries=4, keys=4, d_model=16, num_heads=4, mask="full"),
    },
    "multihead_attention-gradients": {"padding": inputs(2, mask="padding")},
}


HIDDEN = {
    "multihead_attention": {
        "no-mask": inputs(3, queries=11, keys=3, d_model=20, num_heads=5),
        "padding": inputs(5, queries=3, keys=11, d_model=20, num_heads=5, mask="padding"),
        "padding-throughout": inputs(3, queries=2, mask="nothing"),
        "full-mask": inputs(3, queries=11, keys=5, d_model=14, num_heads=2, mask="full"),
        "mask-per-head": inputs(3, queries=2, keys=5, d_model=28, num_heads=7, mask="per head"),
        "no-batch-padding": inputs(queries=3, keys=11, d_model=15, num_heads=5, mask="padding"),
        "two-batch-dims": inputs(3, 2, d_model=14, num_heads=2, mask="same for all"),
        "square-padding": inputs(6, queries=6, keys=6, d_model=36, num_heads=6, mask="padding"),
    }
}


def _draw_case(batch: Batch, masks: tuple[str | None, ...], random: Spread) -> CaseSpec:
    heads = random.choice((2, 3, 4, 1))
    axes, queries, keys, d_head = batch(random), draw_size(random), draw_size(random), draw_size(random)
    sizes = {"queries": queries, "keys": keys, "d_model": heads * d_head, "num_heads": heads}
    drawing = inputs(*axes, **sizes, mask=random.choice(masks))
    return CaseSpec("multihead_attention", "run_multihead_attention", drawing)


def kinds() -> Kinds:
    masks = ("padding", "full", "same for all", "per head")
    kinds = {kind: partial(_draw_case, batch, masks) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(_draw_case, draw_one_axis, (None,))}

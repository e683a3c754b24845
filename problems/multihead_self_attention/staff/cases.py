"""Test cases for causal multi-head self-attention."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator

from problems.rope.staff.cases import POSITIONS, SHARED
from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis, draw_size


def inputs(
    *batch: int,
    positions: str | None = None,
    sequence: int = 7,
    d_model: int = 24,
    num_heads: int = 3,
    theta: float = 10000.0,
    max_seq_len: int = 100,
) -> Callable[[Generator], Inputs]:
    """Draw inputs; with RoPE if `positions` names one of `POSITIONS`."""

    def draw(generator: Generator) -> Inputs:
        inputs: Inputs = {"d_model": d_model, "num_heads": num_heads}
        if positions is not None:
            inputs |= {"max_seq_len": max_seq_len, "theta": theta}
        inputs |= draw_weights(d_model, generator)
        inputs["in_features"] = torch.randn(*batch, sequence, d_model, generator=generator)
        if positions is not None:
            inputs["token_positions"] = POSITIONS[positions](batch, sequence, max_seq_len, generator)
        return inputs

    return draw


def draw_weights(d_model: int, generator: Generator) -> Inputs:
    """Draw the four weights, large enough that attention is far from uniform."""
    return {
        f"{name}_proj_weight": 2 * torch.randn(d_model, d_model, generator=generator) / math.sqrt(d_model)
        for name in "qkvo"
    }


PUBLIC = {
    "multihead": {
        "3d": inputs(2),
        "no-batch": inputs(),
        "two-batch-dims": inputs(2, 5),
        "many-heads": inputs(2, num_heads=6),
        "one-head": inputs(2, num_heads=1),
        "heads-of-one": inputs(2, d_model=5, num_heads=5),
        "one-token": inputs(2, sequence=1),
        "square": inputs(4, sequence=4, d_model=16, num_heads=4),
    },
    "multihead-gradients": {"3d": inputs(2)},
}
PUBLIC_WITH_ROPE = {
    "multihead-rope": {
        "in-order": inputs(2, positions="in order"),
        "positions-not-given": inputs(2, positions="not given"),
        "offset": inputs(2, positions="offset"),
        "permuted": inputs(2, positions="permuted"),
        "spaced": inputs(2, positions="spaced"),
        "per-batch": inputs(2, positions="per batch"),
        "no-batch": inputs(positions="spaced"),
        "two-batch-dims": inputs(2, 5, positions="spaced"),
        "small-theta": inputs(2, positions="spaced", theta=100.0),
        "one-token": inputs(2, positions="spaced", sequence=1),
        "longest-sequence": inputs(2, positions="in order", sequence=11, max_seq_len=11),
        "square": inputs(4, positions="spaced", sequence=4, d_model=16, num_heads=4),
    },
    "multihead-rope-gradients": {"spaced": inputs(2, positions="spaced")},
}


HIDDEN = {
    "multihead": {
        "3d": inputs(3, sequence=11, d_model=20, num_heads=5),
        "no-batch": inputs(sequence=11, d_model=20, num_heads=5),
        "two-batch-dims": inputs(3, 2, d_model=12, num_heads=2),
        "two-heads": inputs(3, sequence=5, d_model=28, num_heads=2),
        "one-head": inputs(3, sequence=5, d_model=14, num_heads=1),
        "heads-of-one": inputs(3, d_model=7, num_heads=7),
        "square": inputs(6, sequence=6, d_model=36, num_heads=6),
    },
    "multihead-gradients": {"3d": inputs(3, sequence=5, d_model=20, num_heads=5)},
}
HIDDEN_WITH_ROPE = {
    "multihead-rope": {
        "in-order": inputs(3, positions="in order", sequence=11, d_model=20, num_heads=5),
        "positions-not-given": inputs(3, positions="not given", sequence=11, d_model=20, num_heads=5),
        "permuted": inputs(3, positions="permuted", sequence=11, d_model=20, num_heads=5),
        "spaced": inputs(3, positions="spaced", sequence=5, d_model=28, num_heads=7),
        "per-batch": inputs(3, positions="per batch", sequence=5, d_model=28, num_heads=7),
        "two-batch-dims": inputs(3, 2, positions="spaced", d_model=12, num_heads=2),
        "small-theta": inputs(3, positions="spaced", theta=50.0),
        "square": inputs(6, positions="spaced", sequence=6, d_model=36, num_heads=6),
    },
    "multihead-rope-gradients": {"permuted": inputs(3, positions="permuted", sequence=5, d_model=20, num_heads=5)},
}


def _draw_case(batch: Batch, heads: tuple[int, ...], random: Spread) -> CaseSpec:
    """Draw a case with an even d_head; an odd one, allowed without RoPE, has a stored case."""
    num_heads = random.choice(heads)
    d_model = 2 * num_heads * random.choice((1, 2, 3))
    drawing = inputs(*batch(random), sequence=draw_size(random), d_model=d_model, num_heads=num_heads)
    return CaseSpec("multihead", "run_multihead_self_attention", drawing)


def kinds() -> Kinds:
    return {
        **{kind: partial(_draw_case, batch, (2, 3, 4)) for kind, batch in LEADING.items()},
        "one-head": partial(_draw_case, draw_one_axis, (1,)),
    }


def _draw_case_with_rope(batch: Batch, positions: tuple[str, ...], random: Spread) -> CaseSpec:
    heads = random.choice((2, 3, 4, 1))
    axes, where, sequence = batch(random), random.choice(positions), draw_size(random)
    d_model = 2 * heads * random.choice((1, 2, 3))
    drawing = inputs(*axes, positions=where, sequence=sequence, d_model=d_model, num_heads=heads)
    return CaseSpec("multihead-rope", "run_multihead_self_attention_with_rope", drawing)


def kinds_with_rope() -> Kinds:
    kinds = {kind: partial(_draw_case_with_rope, batch, SHARED) for kind, batch in LEADING.items()}
    return {
        **kinds,
        "positions-per-batch": partial(_draw_case_with_rope, draw_one_axis, ("per batch",)),
        "positions-not-given": partial(_draw_case_with_rope, draw_one_axis, ("not given",)),
    }

"""Test cases for decoding."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator

from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis, draw_size


def inputs(
    *batch: int,
    new: int = 5,
    past: int = 0,
    d_model: int = 24,
    num_heads: int = 6,
    num_kv_heads: int = 2,
    window: int | None = None,
    theta: float = 10000.0,
    max_seq_len: int = 100,
) -> Callable[[Generator], Inputs]:
    """Draw `new` tokens behind a cache of `past` tokens."""

    def draw(generator: Generator) -> Inputs:
        d_k = d_model // num_heads
        rows = {"q": d_model, "k": num_kv_heads * d_k, "v": num_kv_heads * d_k, "o": d_model}
        weights = {
            f"{name}_proj_weight": 2 * torch.randn(count, d_model, generator=generator) / math.sqrt(d_model)
            for name, count in rows.items()
        }
        x = torch.randn(*batch, new, d_model, generator=generator)
        cache = 2 * torch.randn(2, *batch, num_kv_heads, past, d_k, generator=generator)
        numbers = {"d_model": d_model, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "window": window}
        numbers |= {"max_seq_len": max_seq_len, "theta": theta}
        keys, values = (part.clone() if past else None for part in cache)
        return {**numbers, **weights, "in_features": x, "keys": keys, "values": values}

    return draw


GRADIENTS = (*(f"{name}_proj_weight" for name in "qkvo"), "in_features")
PUBLIC = {
    "decoding": {
        "no-cache": inputs(2),
        "no-cache-all-heads": inputs(2, num_kv_heads=6),
        "no-cache-three-of-six": inputs(2, num_kv_heads=3),
        "no-cache-one-of-six": inputs(2, num_kv_heads=1),
        "no-cache-window": inputs(2, new=7, window=3),
        "no-cache-window-of-one": inputs(2, window=1),
        "no-cache-one-token": inputs(2, new=1),
        "one-token": inputs(2, new=1, past=7),
        "one-token-window": inputs(2, new=1, past=7, window=3),
        "several-tokens": inputs(2, new=3, past=7),
        "several-tokens-window": inputs(2, new=3, past=7, window=5),
        "window-longer-than-all": inputs(2, new=3, past=7, window=50),
        "no-batch": inputs(new=2, past=3),
        "two-batch-dims": inputs(2, 5, new=2, past=3, window=2),
        "small-theta": inputs(2, new=3, past=7, theta=100.0),
        "last-position": inputs(2, new=2, past=9, max_seq_len=11),
        "square": inputs(4, new=4, past=4, d_model=16, num_heads=4, num_kv_heads=4),
    },
    "decoding-in-pieces": {"no-window": inputs(2, new=7), "window": inputs(2, new=7, num_kv_heads=3, window=3)},
    "decoding-gradients": {"no-cache": inputs(2), "several-tokens-window": inputs(2, new=3, past=7, window=5)},
}


HIDDEN = {
    "decoding": {
        "no-cache": inputs(3, new=7, d_model=16, num_heads=4),
        "no-cache-window": inputs(3, new=11, d_model=20, num_heads=10, num_kv_heads=5, window=4),
        "one-token": inputs(3, new=1, past=11, d_model=16, num_heads=4),
        "one-token-window": inputs(3, new=1, past=11, num_kv_heads=3, window=5),
        "several-tokens": inputs(3, new=5, past=3, d_model=32, num_heads=8, num_kv_heads=4),
        "several-tokens-window": inputs(3, new=5, past=6, num_kv_heads=3, window=4),
        "two-batch-dims": inputs(3, 2, new=2, past=5, d_model=16, num_heads=4),
        "square": inputs(6, new=6, past=6, d_model=36, num_heads=6, num_kv_heads=6),
    },
    "decoding-in-pieces": {"window": inputs(3, new=11, d_model=16, num_heads=4, window=4)},
    "decoding-gradients": {"several-tokens": inputs(3, new=5, past=3, d_model=16, num_heads=4, window=4)},
}


def _draw_case(batch: Batch, window: bool, is_behind: bool, random: Spread) -> CaseSpec:
    kv_heads = random.choice((2, 1, 3))
    heads = kv_heads * random.choice((2, 3, 1))
    axes, new, past = batch(random), draw_size(random), draw_size(random) if is_behind else 0
    d_model, behind = 2 * heads * random.choice((1, 2, 3)), random.choice((2, 3, 4)) if window else None
    sizes = partial(inputs, *axes, new=new, past=past, d_model=d_model, num_heads=heads, num_kv_heads=kv_heads)
    drawing = sizes(window=behind, theta=random.choice((10000.0, 100.0)))
    return CaseSpec("decoding", "run_decoding", drawing)


def kinds() -> Kinds:
    return {
        **{kind: partial(_draw_case, batch, False, True) for kind, batch in LEADING.items()},
        "window": partial(_draw_case, draw_one_axis, True, True),
        "no-cache": partial(_draw_case, draw_one_axis, False, False),
    }


def kinds_without_a_cache() -> Kinds:
    draw = partial(_draw_case, draw_one_axis)
    return {"no-window": partial(draw, False, False), "window": partial(draw, True, False)}

"""Test cases for softmax."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator

from whichline_grader.author import CaseSpec, Inputs, Kinds, Spread, draw_size
from whichline_grader.authoring.cases import FULL_PRECISION, HALF_PRECISION


def inputs(
    *shape: int,
    dim: int,
    scale: float = 1.0,
    shift: float = 0.0,
    hidden: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Callable[[Generator], Inputs]:
    """Draw inputs; `shift` is the spread of the slices' mean logits, `hidden` the share of logits that are -inf."""

    def draw(generator: Generator) -> Inputs:
        x = torch.randn(shape, generator=generator) * scale
        x = x.movedim(dim, -1)
        x = x + shift * torch.randn((*x.shape[:-1], 1), generator=generator)
        # Keep the first logit of each slice, so that no slice is all -inf.
        x[..., 1:][torch.rand(x[..., 1:].shape, generator=generator) < hidden] = -math.inf
        return {"in_features": x.movedim(-1, dim).to(dtype), "dim": dim}

    return draw


PUBLIC = {
    "softmax": {
        "1d": inputs(7, dim=0),
        "2d-first-dim": inputs(3, 5, dim=0),
        "3d-first-dim": inputs(2, 5, 7, dim=0),
        "3d-middle-dim": inputs(2, 5, 7, dim=1),
        "3d-last-dim": inputs(2, 5, 7, dim=-1),
        "4d-negative-dim": inputs(2, 3, 5, 7, dim=-2),
        "square": inputs(5, 5, 5, dim=1),
        "large-logits": inputs(3, 5, dim=-1, scale=1e4),
        "slices-far-apart": inputs(3, 5, dim=-1, shift=1000.0),
        "some-minus-infinity": inputs(3, 11, dim=-1, hidden=0.4),
    },
    "softmax-half-precision": {name: inputs(3, 101, dim=-1, dtype=dtype) for name, dtype in HALF_PRECISION.items()},
    "softmax-last-digit": {name: inputs(3, 5, dim=-1, dtype=dtype) for name, dtype in FULL_PRECISION.items()},
    "softmax-gradients": {"last-dim": inputs(2, 5, 7, dim=-1), "middle-dim": inputs(2, 5, 7, dim=1)},
}


HIDDEN = {
    "softmax": {
        "1d": inputs(11, dim=-1),
        "one-logit": inputs(3, 1, dim=-1),
        "2d-first-dim": inputs(7, 3, dim=-2),
        "3d-first-dim": inputs(3, 7, 5, dim=-3),
        "3d-middle-dim": inputs(3, 7, 5, dim=-2),
        "4d-third-dim": inputs(2, 5, 3, 7, dim=2),
        "5d-second-dim": inputs(2, 3, 2, 5, 3, dim=1),
        "square": inputs(6, 6, 6, dim=0),
        "large-logits": inputs(5, 7, dim=0, scale=3e4),
        "slices-far-apart": inputs(5, 7, dim=0, shift=1000.0),
        "some-minus-infinity": inputs(5, 13, dim=0, hidden=0.6),
    },
    "softmax-half-precision": {
        name: inputs(211, 3, dim=0, scale=2.0, dtype=dtype) for name, dtype in HALF_PRECISION.items()
    },
    "softmax-last-digit": {name: inputs(5, 7, dim=0, dtype=dtype) for name, dtype in FULL_PRECISION.items()},
    "softmax-gradients": {"first-dim": inputs(5, 3, 7, dim=0), "last-dim": inputs(3, 5, dim=-1)},
}


def _draw_case(dimensions: tuple[int, ...], gradients: tuple[str, ...], random: Spread) -> CaseSpec:
    shape = [draw_size(random) for _ in range(random.choice(dimensions))]
    dim = random.choice(range(-len(shape), len(shape)))
    # With scale 100 there is hardly a gradient, but exp may overflow; the other two scales have one.
    scale = random.choice((1.0, 3.0, 100.0) if gradients else (1.0, 30.0, 1000.0))
    return CaseSpec("softmax", "run_softmax", inputs(*shape, dim=dim, scale=scale), gradients)


def kinds(gradients: tuple[str, ...] = ()) -> Kinds:
    kinds = {"one-dimension": (1,), "two-dimensions": (2,), "more-dimensions": (3, 4)}
    return {kind: partial(_draw_case, dimensions, gradients) for kind, dimensions in kinds.items()}

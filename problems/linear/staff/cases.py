"""Test cases for the linear layer."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator

from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_size


def inputs(*batch: int, d_in: int, d_out: int, size: float = 1.0) -> Callable[[Generator], Inputs]:
    def draw(generator: Generator) -> Inputs:
        weights = size * torch.randn(d_out, d_in, generator=generator) / math.sqrt(d_in)
        x = torch.randn(*batch, d_in, generator=generator)
        return {"d_in": d_in, "d_out": d_out, "weights": weights, "in_features": x}

    return draw


PUBLIC = {
    "linear": {
        "vector": inputs(d_in=5, d_out=7),
        "2d": inputs(3, d_in=5, d_out=7, size=4.0),  # far larger than initial weights
        "3d": inputs(2, 3, d_in=7, d_out=5),
        "square": inputs(4, 4, d_in=4, d_out=4),
    }
}


HIDDEN = {
    "linear": {
        "vector": inputs(d_in=11, d_out=3),
        "3d": inputs(3, 2, d_in=3, d_out=11),
        "4d": inputs(2, 3, 5, d_in=11, d_out=7),
        "square": inputs(6, 6, d_in=6, d_out=6),
    }
}


def _draw_case(batch: Batch, random: Spread) -> CaseSpec:
    return CaseSpec("linear", "run_linear", inputs(*batch(random), d_in=draw_size(random), d_out=draw_size(random)))


def kinds() -> Kinds:
    return {kind: partial(_draw_case, batch) for kind, batch in LEADING.items()}

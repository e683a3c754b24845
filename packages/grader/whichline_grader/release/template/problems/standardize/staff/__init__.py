"""CHANGE: the cases: how the arguments of your function are drawn. No folder that is named `staff` ever ships."""

from collections.abc import Callable

import torch
from torch import Generator

from whichline_grader.author import CaseSpec, Inputs, ProblemSpec, Spread, draw_size, specs


def draw(*shape: int, scale: float = 1.0, eps: float = 1e-3) -> Callable[[Generator], Inputs]:
    return lambda generator: {"x": scale * torch.randn(shape, generator=generator), "eps": eps}


def draw_any(random: Spread) -> CaseSpec:
    return CaseSpec("standardize", "run_standardize", draw(draw_size(random), 1 + draw_size(random), eps=0.1))


SPEC = ProblemSpec(
    public=specs("run_standardize", {"standardize": {"matrix": draw(3, 5), "small": draw(2, 3, 7, scale=0.01)}}),
    hidden=specs("run_standardize", {"standardize": {"vector": draw(6), "small": draw(4, 5, scale=0.01)}}),
)

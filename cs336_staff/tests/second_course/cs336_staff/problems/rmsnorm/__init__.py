"""RMSNorm."""

from functools import partial

import torch
from torch import Generator, Tensor

from cs336_staff.authoring.cases import CaseSpec, Inputs, specs
from cs336_staff.authoring.room import Room
from cs336_staff.hidden.kinds import draw_size


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    mean = in_features.square().mean(-1, keepdim=True)
    return in_features / (mean + eps).sqrt() * weights


def inputs(shape: tuple[int, ...], scale: float, eps: float, generator: Generator) -> Inputs:
    weights, x = (torch.randn(size, generator=generator) for size in (shape[-1:], shape))
    return {"d_model": shape[-1], "eps": eps, "weights": weights, "in_features": scale * x}


usual, small = partial(inputs, (2, 3, 7), 1.0, 1e-5), partial(inputs, (6,), 0.01, 1e-3)
case = partial(CaseSpec, "rmsnorm", "run_rmsnorm")
KINDS = {"2d": lambda random: case(partial(inputs, (draw_size(random), 1 + draw_size(random)), 1.0, 0.1))}
ROOM = Room(
    answers=[run_rmsnorm],
    public=specs("run_rmsnorm", {"rmsnorm": {"3d": usual, "small": small}}),
    hidden=specs("run_rmsnorm", {"rmsnorm": {"3d": usual, "small": small}}),
)

"""SwiGLU."""

from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from cs336_staff.authoring.cases import CaseSpec, Inputs, specs
from cs336_staff.authoring.room import Room
from cs336_staff.hidden.kinds import draw_size


def run_swiglu(W1: Tensor, V: Tensor, W2: Tensor, in_features: Tensor) -> Tensor:
    return (F.silu(in_features @ W1.T) * (in_features @ V.T)) @ W2.T


def inputs(shape: tuple[int, ...], d_ff: int, generator: Generator) -> Inputs:
    up, down = (d_ff, shape[-1]), (shape[-1], d_ff)
    shapes = {"W1": up, "V": up, "W2": down, "in_features": shape}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


case = partial(CaseSpec, "swiglu", "run_swiglu")
KINDS = {"2d": lambda random: case(partial(inputs, (draw_size(random), draw_size(random)), draw_size(random)))}
ROOM = Room(
    answers=[run_swiglu],
    public=specs("run_swiglu", {"swiglu": {"vector": partial(inputs, (5,), 7), "3d": partial(inputs, (2, 3, 7), 5)}}),
    hidden=specs(
        "run_swiglu", {"swiglu": {"vector": partial(inputs, (3,), 5), "4d": partial(inputs, (2, 3, 2, 5), 9)}}
    ),
)

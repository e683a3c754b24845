"""Cross-entropy."""

from functools import partial

import torch
from torch import Generator, Tensor

from cs336_staff.authoring.cases import CaseSpec, Inputs, specs
from cs336_staff.authoring.room import Room
from cs336_staff.hidden.kinds import draw_size


def run_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return (torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).mean()


def inputs(batch: int, classes: int, scale: float, generator: Generator) -> Inputs:
    logits = scale * torch.randn(batch, classes, generator=generator)
    return {"logits": logits, "targets": torch.randint(classes, (batch,), generator=generator)}


usual, large, one = partial(inputs, 3, 5, 1.0), partial(inputs, 4, 7, 500.0), partial(inputs, 1, 4, 1.0)
case = partial(CaseSpec, "cross-entropy", "run_cross_entropy")
KINDS = {"2d": lambda random: case(partial(inputs, draw_size(random), 1 + draw_size(random), 1.0))}
ROOM = Room(
    answers=[run_cross_entropy],
    public=specs("run_cross_entropy", {"cross-entropy": {"usual": usual, "large": large}}),
    hidden=specs("run_cross_entropy", {"cross-entropy": {"one": one, "large": large}}),
)

"""Cross-entropy."""

from functools import partial

import torch
from torch import Generator, Tensor

from cs336_staff.authoring.cases import CaseSpec, Inputs, specs
from cs336_staff.authoring.room import Room, whole, wrong
from cs336_staff.hidden.kinds import draw_size


def run_cross_entropy(logits: Tensor, targets: Tensor, of_all=torch.logsumexp, reduce=torch.mean) -> Tensor:
    return reduce(of_all(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1))


def by_subtraction(logits: Tensor, targets: Tensor) -> Tensor:
    shifted = logits - logits.amax(-1, keepdim=True)
    log_probabilities = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -log_probabilities[torch.arange(len(targets)), targets].sum() / len(targets)


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
    build=lambda earlier: partial(run_cross_entropy),
    adapters=lambda cross_entropy: {"run_cross_entropy": cross_entropy},
    styles={"another order": whole(by_subtraction)},
    mistakes=(
        wrong("cross-entropy-sum", reduce=torch.sum),
        wrong("cross-entropy-overflow", of_all=lambda x, dim: x.exp().sum(dim).log()),
    ),
)

"""The cases of `batch_norm`."""

import torch

from whichline_grader.author import CaseSpec, ProblemSpec, Spread, draw_size, specs


def draw(*shape: int, training: bool, scale: float = 1.0, eps: float = 0.1):
    return lambda generator: {
        "x": scale * torch.randn(shape, generator=generator) + 0.5,
        **{name: torch.randn(shape[1], generator=generator) for name in ("weight", "bias", "running_mean")},
        "running_var": 0.5 + torch.rand(shape[1], generator=generator),
        "training": training,
        "eps": eps,
    }


def draw_any(random: Spread, training: bool) -> CaseSpec:
    return CaseSpec("batch_norm", "run_batch_norm", draw(*(draw_size(random) for _ in range(4)), training=training))


CASES = {"training": draw(2, 3, 5, 4, training=True), "small": draw(3, 5, 2, 4, training=True, scale=0.01, eps=1e-3)}

SPEC = ProblemSpec(
    public=specs("run_batch_norm", {"batch_norm": CASES | {"evaluation": draw(2, 3, 5, 4, training=False)}}),
    hidden=specs("run_batch_norm", {"batch_norm": CASES | {"evaluation": draw(4, 2, 3, 5, training=False)}}),
)

"""Attention that fills forbidden scores with a number that is not small enough."""

import math
from functools import partial

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import Misconception, attention, in_attention

HINT = "Which number x gives exp(x) = 0 exactly, whatever the other scores are?"


def filled(id: str, number: str, value: float) -> Misconception:
    def fill(scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, max(value, torch.finfo(scores.dtype).min))

    wrong = partial(attention, hide=fill)
    return in_attention(
        f"attention-fill-{id}", f"you filled forbidden scores with {number}, not with -inf", HINT, wrong
    )


ENTRIES = (
    filled("0", "0 (or multiplied them by the mask)", 0.0),
    filled("1", "-1", -1.0),
    filled("10", "-10", -10.0),
    filled("100", "-100", -100.0),
    filled("1e4", "-1e4", -1e4),
    filled("1e9", "-1e9", -1e9),
    filled("lowest", "the lowest number there is (finfo.min)", -math.inf),
)

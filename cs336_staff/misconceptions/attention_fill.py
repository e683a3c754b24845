"""Attention that fills forbidden scores with a number that is not small enough."""

from functools import partial

import torch

from cs336_staff.misconceptions.parts import Misconception, attention, in_attention

HINT = "Which number x gives exp(x) = 0 exactly, whatever the other scores are?"


def filled(id: str, number: str, value: float) -> Misconception:
    wrong = partial(attention, hide=lambda scores, mask: scores.masked_fill(~mask, value))
    return in_attention(
        f"attention-fill-{id}", f"you filled forbidden scores with {number}, not with -inf", HINT, wrong
    )


ENTRIES = (
    filled("0", "0 (or multiplied them by the mask)", 0.0),
    filled("1", "-1", -1.0),
    filled("10", "-10", -10.0),
    filled("100", "-100", -100.0),
    filled("1e4", "-1e4", -1e4),
    in_attention(
        "attention-fill-lowest",
        "you filled forbidden scores with a large negative number (-1e9, finfo.min), not with -inf",
        "Where every key is forbidden, all scores are the same number: what does softmax make of that?",
        partial(attention, hide=lambda scores, mask: scores.masked_fill(~mask, torch.finfo(scores.dtype).min)),
    ),
)

"""Softmax that overflows or underflows on large logits."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_softmax

HINT = (
    "What is exp(1000) in float32? Which number may be taken from every logit of a slice without changing the answer?"
)


def normalised(exponentials: Tensor, dim: int) -> Tensor:
    return exponentials / exponentials.sum(dim, keepdim=True)


ENTRIES = (
    in_softmax(
        "softmax-no-maximum",
        "you took the exponential of the logits without subtracting their maximum",
        HINT,
        lambda x, dim: normalised(torch.exp(x), dim),
    ),
    in_softmax(
        "softmax-global-maximum",
        "you subtracted the maximum of the whole tensor, not that of each slice",
        "Take two slices, one at 0 and one at -300. What does the second become when you subtract the largest of all?",
        lambda x, dim: normalised(torch.exp(x - x.max()), dim),
    ),
    in_softmax(
        "softmax-mean-subtracted",
        "you subtracted the mean, not the maximum",
        "After your subtraction, which is the largest number that exp can meet? Is it bounded?",
        lambda x, dim: normalised(torch.exp(x - x.mean(dim, keepdim=True)), dim),
    ),
    in_softmax(
        "softmax-minimum-subtracted",
        "you subtracted the minimum, not the maximum",
        "After your subtraction, which is the largest number that exp can meet? Is it bounded?",
        lambda x, dim: normalised(torch.exp(x - x.amin(dim, keepdim=True)), dim),
    ),
)

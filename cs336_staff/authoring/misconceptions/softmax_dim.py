"""Softmax along another dimension than the one that was asked for."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_softmax, softmax

HINT = "Which dimension are you told to normalise? Sum your answer along `dim`: is every sum 1?"


def without_keepdim(x: Tensor, dim: int) -> Tensor:
    exponentials = torch.exp(x - x.amax(dim, keepdim=True))
    return exponentials / exponentials.sum(dim)


ENTRIES = (
    in_softmax(
        "softmax-ignores-dim",
        "you normalised the last dimension whatever `dim` says",
        HINT,
        lambda x, dim: softmax(x, -1),
    ),
    in_softmax(
        "softmax-first-dim", "you normalised dimension 0 whatever `dim` says", HINT, lambda x, dim: softmax(x, 0)
    ),
    in_softmax(
        "softmax-second-dim",
        "you normalised dimension 1 whatever `dim` says",
        HINT,
        lambda x, dim: softmax(x, min(1, x.ndim - 1)),
    ),
    in_softmax(
        "softmax-all-dims",
        "you divided by the sum over the whole tensor, not along `dim`",
        "What is the sum of your whole answer, and what should it be when there are six slices?",
        lambda x, dim: softmax(x.flatten(), 0).view_as(x),
    ),
    in_softmax(
        "softmax-no-keepdim",
        "you divided by a sum that had lost its dimension (keepdim=True is missing)",
        "Which shape does x.sum(dim) have, and along which axis does broadcasting lay it beside x?",
        without_keepdim,
    ),
)

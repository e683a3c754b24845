"""Softmax that is wrong: mistakes in its steps, and what no numbers show."""

import torch
from torch import Tensor

from cs336_staff.authoring.room import wrong, wrong_steps
from cs336_staff.problems.softmax.program import CUTS, TABLE
from cs336_staff.problems.softmax.programs import softmax


def exponentials(x: Tensor, dim: int) -> Tensor:
    return torch.exp(x - x.amax(dim, keepdim=True))


def normalised(exponentials: Tensor, dim: int, epsilon: float = 0.0) -> Tensor:
    return exponentials / (exponentials.sum(dim, keepdim=True) + epsilon)


def in_place(x: Tensor, dim: int) -> Tensor:
    x -= x.amax(dim, keepdim=True)
    return softmax(x, dim)


MISTAKES = (
    *wrong_steps("softmax", TABLE.changes),
    # Another floating-point type
    wrong("softmax-half-inside", lambda x, dim: softmax(x.half(), dim).half().to(x.dtype)),
    wrong("softmax-float32-out", lambda x, dim: softmax(x.float(), dim)),
    wrong("softmax-float64-out", lambda x, dim: softmax(x.double(), dim)),
    # The right numbers, but autograd or the input is left behind
    wrong("softmax-detached", lambda x, dim: softmax(x.detach(), dim)),
    wrong("softmax-numpy", lambda x, dim: softmax(torch.from_numpy(x.numpy()), dim)),
    wrong("softmax-numpy-detached", lambda x, dim: softmax(torch.from_numpy(x.detach().numpy()), dim)),
    *wrong_steps("softmax", CUTS),
    wrong("softmax-in-place", in_place),
)

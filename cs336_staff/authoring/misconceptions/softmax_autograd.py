"""Softmax that gives the right numbers and leaves autograd, or its input, behind."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_softmax, softmax

HINT = "Which operation of yours does autograd not see? Print answer.grad_fn after each line."


def through_numpy(x: Tensor, dim: int) -> Tensor:
    return softmax(torch.from_numpy(x.numpy()), dim)


def detached_to_numpy(x: Tensor, dim: int) -> Tensor:
    return softmax(torch.from_numpy(x.detach().numpy()), dim)


def in_place(x: Tensor, dim: int) -> Tensor:
    x -= x.amax(dim, keepdim=True)
    return softmax(x, dim)


def detached_sum(x: Tensor, dim: int) -> Tensor:
    exponentials = torch.exp(x - x.amax(dim, keepdim=True))
    return exponentials / exponentials.sum(dim, keepdim=True).detach()


ENTRIES = (
    in_softmax(
        "softmax-detached", "you cut the answer off from autograd", HINT, lambda x, dim: softmax(x.detach(), dim)
    ),
    in_softmax(
        "softmax-numpy", "you went through numpy, which keeps no gradient and knows no bfloat16", HINT, through_numpy
    ),
    in_softmax(
        "softmax-numpy-detached",
        "you went through .detach().numpy(), which drops the gradient and knows no bfloat16",
        HINT,
        detached_to_numpy,
    ),
    in_softmax(
        "softmax-detached-sum",
        "you cut the sum of the exponentials off from autograd",
        "When one logit grows, what happens to the probabilities of the others? Does your gradient know it?",
        detached_sum,
    ),
    in_softmax(
        "softmax-in-place",
        "you changed your input in place",
        "Who else holds the tensor that you were given? What does `x -= y` do that `x = x - y` does not?",
        in_place,
    ),
)

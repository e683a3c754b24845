"""Softmax that is wrong."""

import torch
from torch import Tensor

from cs336_staff.authoring.room import wrong
from cs336_staff.problems.softmax.programs import softmax


def exponentials(x: Tensor, dim: int) -> Tensor:
    return torch.exp(x - x.amax(dim, keepdim=True))


def normalised(exponentials: Tensor, dim: int, epsilon: float = 0.0) -> Tensor:
    return exponentials / (exponentials.sum(dim, keepdim=True) + epsilon)


def without_keepdim(x: Tensor, dim: int) -> Tensor:
    e = exponentials(x, dim)
    return e / e.sum(dim)


def detached_sum(x: Tensor, dim: int) -> Tensor:
    e = exponentials(x, dim)
    return e / e.sum(dim, keepdim=True).detach()


def in_place(x: Tensor, dim: int) -> Tensor:
    x -= x.amax(dim, keepdim=True)
    return softmax(x, dim)


MISTAKES = (
    # Along another dimension
    wrong("softmax-ignores-dim", "normalises the last dimension whatever dim says", lambda x, dim: softmax(x, -1)),
    wrong("softmax-first-dim", "normalises dimension 0 whatever dim says", lambda x, dim: softmax(x, 0)),
    wrong(
        "softmax-second-dim",
        "normalises dimension 1 whatever dim says",
        lambda x, dim: softmax(x, min(1, x.ndim - 1)),
    ),
    wrong(
        "softmax-all-dims",
        "divides by the sum over the whole tensor, not along dim",
        lambda x, dim: softmax(x.flatten(), 0).view_as(x),
        carried=False,
    ),
    wrong(
        "softmax-no-keepdim", "divides by a sum that has lost its dimension (keepdim=True is missing)", without_keepdim
    ),
    # Overflow and underflow on large logits
    wrong(
        "softmax-no-maximum",
        "takes the exponential of the logits without subtracting their maximum",
        lambda x, dim: normalised(torch.exp(x), dim),
    ),
    wrong(
        "softmax-global-maximum",
        "subtracts the maximum of the whole tensor, not that of each slice",
        lambda x, dim: normalised(torch.exp(x - x.max()), dim),
    ),
    wrong(
        "softmax-mean-subtracted",
        "subtracts the mean, not the maximum",
        lambda x, dim: normalised(torch.exp(x - x.mean(dim, keepdim=True)), dim),
    ),
    wrong(
        "softmax-minimum-subtracted",
        "subtracts the minimum, not the maximum",
        lambda x, dim: normalised(torch.exp(x - x.amin(dim, keepdim=True)), dim),
    ),
    # Another function
    wrong(
        "softmax-epsilon",
        "adds a small number to the denominator",
        lambda x, dim: normalised(exponentials(x, dim), dim, epsilon=1e-8),
    ),
    wrong("softmax-log", "gives the logarithm of softmax", lambda x, dim: torch.log_softmax(x, dim)),
    wrong("softmax-sigmoid", "takes the sigmoid of each logit by itself", lambda x, dim: torch.sigmoid(x)),
    wrong(
        "softmax-exp2",
        "raises 2 to the logits, not e",
        lambda x, dim: normalised(torch.exp2(x - x.amax(dim, keepdim=True)), dim),
    ),
    wrong("softmax-not-normalised", "does not divide by the sum of the exponentials", exponentials),
    wrong(
        "softmax-sign",
        "takes the exponential of -x: the smallest logit gets the largest probability",
        lambda x, dim: softmax(-x, dim),
    ),
    # Another floating-point type
    wrong(
        "softmax-half-inside", "computes in half precision", lambda x, dim: softmax(x.half(), dim).half().to(x.dtype)
    ),
    wrong("softmax-float32-out", "gives float32 whatever the input is", lambda x, dim: softmax(x.float(), dim)),
    wrong("softmax-float64-out", "gives float64 whatever the input is", lambda x, dim: softmax(x.double(), dim)),
    # The right numbers, but autograd or the input is left behind
    wrong("softmax-detached", "cuts the answer off from autograd", lambda x, dim: softmax(x.detach(), dim)),
    wrong(
        "softmax-numpy",
        "goes through numpy, which keeps no gradient and lacks bfloat16",
        lambda x, dim: softmax(torch.from_numpy(x.numpy()), dim),
    ),
    wrong(
        "softmax-numpy-detached",
        "goes through .detach().numpy(), which drops the gradient and lacks bfloat16",
        lambda x, dim: softmax(torch.from_numpy(x.detach().numpy()), dim),
    ),
    wrong("softmax-detached-sum", "cuts the sum of the exponentials off from autograd", detached_sum),
    wrong("softmax-in-place", "changes its input in place", in_place),
)

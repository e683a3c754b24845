"""What softmax gives in float64, and how far a right program may round."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cs336_staff.authoring.rounding import HEADROOM, Bounded, Rounded

EXPONENT = 3  # for exp2 a factor that is itself rounded, and the difference to the largest score
SOFTMAX = 5  # the exponentials above and below, and a division
RESCALE = 3  # what each block costs what is carried: a difference and its exponential, and the product


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return torch.softmax(in_features, dim)


def bound_softmax(in_features: Rounded, dim: int, cotangent: Rounded | None = None) -> Bounded:
    P = softmax(in_features.map(lambda x: x.movedim(dim, -1)), in_features.value.movedim(dim, -1) > -math.inf)
    found: Bounded = {"answer": P}
    if cotangent is not None:
        found["gradient of in_features"] = softmax_gradient(P, cotangent.map(lambda x: x.movedim(dim, -1)))
    return {what: x.map(lambda x: x.movedim(-1, dim)) for what, x in found.items()}


@dataclass(frozen=True)
class Probabilities(Rounded):
    """The output of softmax.

    Args:
        exponents: the relative error that the roundings of exponents make.
        sums: the relative error that those of sums and quotients make.
    """

    exponents: Tensor
    sums: float


def softmax(scores: Rounded, mask: Tensor | None, blocks: int = 0) -> Probabilities:
    """exp(s - m) / Σ exp(s - m) over the last axis: the error of a score becomes a relative one of the probabilities.

    A score and the largest one, or the logarithm of the sum, are rounded before they are subtracted. What an online
    softmax carries is rescaled with every block.
    """
    hidden = torch.zeros_like(scores.value, dtype=torch.bool) if mask is None else ~mask.expand_as(scores.value)
    s = scores.value.masked_fill(hidden, -math.inf)
    P = torch.softmax(s, -1).masked_fill(hidden, 0.0)  # NaN where there is nothing to attend to

    def relative(errors: Tensor) -> Tensor:
        errors = errors.masked_fill(hidden, 0.0)
        return errors + (P * errors).sum(-1, keepdim=True)

    exponents = relative((EXPONENT + blocks) * scores.u * (s.abs() + s.amax(-1, keepdim=True).abs()))
    sums = (s.shape[-1] + SOFTMAX + RESCALE * blocks + HEADROOM) * scores.u
    error = P * torch.expm1(relative(scores.error) + exponents + sums) + s.shape[-1] * scores.tiny
    return Probabilities(P, error.masked_fill(hidden, 0.0), scores.dtype, exponents, sums)


def softmax_gradient(P: Probabilities, dP: Rounded) -> Rounded:
    """P ∘ (dP - D), where D = Σ P ∘ dP.

    A program that has other probabilities has them throughout: their errors meet the difference of dP and D. What is
    rounded on the way meets the two one by one. Where the gradient also flows through the largest score, which in exact
    arithmetic changes nothing, the roundings of the whole row land on it.
    """
    p, n = P.value, P.value.shape[-1]

    def average(x: Tensor) -> Tensor:
        return (p * x).sum(-1, keepdim=True)

    slope, size = dP.value - average(dP.value), dP.value.abs()
    inherited = P.error * slope.abs() + p * (P.error * slope.abs()).sum(-1, keepdim=True)
    exponents = p * (P.exponents * (size + average(size)) + average(P.exponents * size))
    sums = (P.sums + n * P.u) * (size + 2 * average(size)) + dP.error + average(dP.error)
    largest = p / p.amax(-1, keepdim=True).clamp_min(P.tiny)
    error = inherited + exponents + p * sums + largest * average(sums) + n * P.tiny
    return Rounded(p * slope, error, P.dtype)

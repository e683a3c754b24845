"""Another function in the place of softmax."""

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_softmax, softmax


def shifted(x: Tensor, dim: int) -> Tensor:
    return x - x.amax(dim, keepdim=True)


def with_epsilon(x: Tensor, dim: int) -> Tensor:
    exponentials = torch.exp(shifted(x, dim))
    return exponentials / (exponentials.sum(dim, keepdim=True) + 1e-8)


def base_two(x: Tensor, dim: int) -> Tensor:
    powers = torch.exp2(shifted(x, dim))
    return powers / powers.sum(dim, keepdim=True)


ENTRIES = (
    in_softmax(
        "softmax-epsilon",
        "you added a small number to the denominator",
        "Can the sum of the exponentials be 0, once the largest logit of each slice is 0?",
        with_epsilon,
        sign="short sums",
    ),
    in_softmax(
        "softmax-log",
        "this is the logarithm of softmax",
        "Can a probability be negative? What is still to be applied to yours?",
        lambda x, dim: torch.log_softmax(x, dim),
    ),
    in_softmax(
        "softmax-sigmoid",
        "this is the sigmoid of each logit by itself",
        "Does your answer for one logit change when another logit of its slice changes? Should it?",
        lambda x, dim: torch.sigmoid(x),
    ),
    in_softmax(
        "softmax-exp2",
        "you raised 2 to the logits, not e",
        "What is the ratio of the probabilities of two logits that differ by 1? Which one does yours give?",
        base_two,
    ),
    in_softmax(
        "softmax-not-normalised",
        "you did not divide by the sum of the exponentials",
        "What does each slice of your answer sum to?",
        lambda x, dim: torch.exp(shifted(x, dim)),
    ),
    in_softmax(
        "softmax-sign",
        "you took the exponential of -x: the smallest logit gets the largest probability",
        "Which element of the answer should be the largest, and which is it in yours?",
        lambda x, dim: softmax(-x, dim),
    ),
)

"""Softmax in steps."""

import math

import torch
from torch import Tensor

from whichline.way.steps import Steps


def follow_softmax(step: Steps, in_features: Tensor, dim: int) -> Tensor:
    step.section = "2 Softmax"
    x = step("x", in_features)
    largest = step("the maximum along `dim`", x.amax(dim, keepdim=True), "Over which axis is the maximum taken?")
    step("the maximum along `dim`, without that axis", largest.squeeze(dim))
    finite = torch.where(largest == -math.inf, 0.0, largest)
    step("the maximum along `dim`, and 0 where that is −inf", finite, "What is −inf − (−inf)?")
    shifted = step("x − max", x - finite, "How large may exp(x) become, and what keeps it small?")
    e = step("exp(x − max)", shifted.exp(), "How large may exp(x) become, and what keeps it small?")
    total = step("the sum of exp(x − max)", e.sum(dim, keepdim=True), "Which axis should each slice sum over?")
    step("the sum of exp(x − max), without that axis", e.sum(dim))
    positive = torch.where(total == 0, 1.0, total)
    step("the sum of exp(x − max), and 1 where it is 0", positive, "What is 0 / 0?")
    step("1 / the sum", 1 / positive)
    step("log of the sum", positive.log())
    step("log Σ exp(x)", finite + positive.log())
    step("log of the softmax", x - finite - positive.log())
    return step("the softmax", e / positive, "Which numbers should sum to 1?")

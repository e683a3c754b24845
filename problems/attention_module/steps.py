"""The attention module in steps, as it is when nothing is dropped.

Which weights are dropped differs from program to program: what follows them in training cannot be followed.
"""

import torch
from torch import Tensor

from problems.scaled_dot_product_attention.steps import ROWS, follow_attention
from whichline.way.steps import Steps

DROP = "When is a weight dropped, and what becomes of those that are kept?"


def follow_module(
    step: Steps, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> Tensor:
    step.section = "B1 Attention as a module"
    inner = Steps()
    answer = follow_attention(inner, Q, K, V, mask)
    weights: Tensor = inner.taken["the weights"].tensor
    for each in inner.taken.values():
        if each.name not in ("the weights", "the answer"):
            step(each.name, each.tensor, each.ask, each.section)
    step("the matrix of weights", weights, ROWS)
    step("True for every weight, as none is dropped", torch.ones(weights.shape, dtype=torch.bool), DROP)
    step("False for every weight, as none is dropped", torch.zeros(weights.shape, dtype=torch.bool), DROP)
    step("1 for every weight, as none is dropped", torch.ones_like(weights), DROP)
    return step("the answer", answer, "With which weights are the values averaged?")

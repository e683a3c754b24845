"""What attention gives in float64."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from problems.softmax.staff.reference import run_softmax

WEIGHTS = "matrix of weights"  # what an adapter may give beside its answer


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return torch.matmul(weigh(Q, K, mask), V)


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None, softmax: Callable[[Tensor, int], Tensor] = run_softmax) -> Tensor:
    """The weights of each query."""
    return softmax(attention_scores(Q, K, mask), -1)


def attention_scores(Q: Tensor, K: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.matmul(Q, K.mT) / math.sqrt(Q.shape[-1])
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)

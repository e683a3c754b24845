"""The attention module without dropout, since which weights are dropped differs between programs."""

import torch
from torch import Tensor

from problems.scaled_dot_product_attention.reference import attention_scores
from problems.softmax.reference import run_softmax, weigh


# B1 Attention as a module
def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    values = V  #: the values. Which of Q, K and V belongs here, and along which axes?
    logits = attention_scores(Q, K, mask)  #: the masked, scaled scores
    weights = weigh(logits)  #: the matrix of weights. Over which axis should each query's weights sum to 1?
    #: When is a weight dropped, and what becomes of those that are kept?
    kept = torch.ones(weights.shape, dtype=torch.bool)  #: True for every weight, as none is dropped
    dropped = ~kept  #: False for every weight, as none is dropped
    factors = torch.ones_like(weights)  #: 1 for every weight, as none is dropped

    return run_softmax(logits, -1) @ values, weights  #: the answer. With which weights are the values averaged?

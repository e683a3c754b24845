"""What attention gives in float64."""

import math

import torch
from torch import Tensor

WEIGHTS = "matrix of weights"  # what an adapter may give beside its answer


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.matmul(Q, K.mT) / math.sqrt(Q.shape[-1])
    if mask is None:
        return torch.matmul(torch.softmax(scores, -1), V)
    # A row with nothing to attend to is left alone here and zeroed below: its softmax, and its gradient, would be NaN.
    attends = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & attends, -math.inf)
    return torch.matmul(torch.softmax(scores, -1) * attends, V)

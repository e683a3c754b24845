"""What attention gives in float64, and how far a right program may round."""

import math

import torch
from torch import Tensor

from cs336_staff.authoring.rounding import Bounded, Rounded
from cs336_staff.problems.softmax.reference import softmax, softmax_gradient

WEIGHTS = "matrix of weights"  # what an adapter may give beside its answer


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.matmul(Q, K.mT) / math.sqrt(Q.shape[-1])
    if mask is None:
        return torch.matmul(torch.softmax(scores, -1), V)
    # A row with nothing to attend to is left alone here and zeroed below: its softmax, and its gradient, would be NaN.
    attends = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & attends, -math.inf)
    return torch.matmul(torch.softmax(scores, -1) * attends, V)


def bound_scaled_dot_product_attention(
    Q: Rounded, K: Rounded, V: Rounded, mask: Tensor | None = None, cotangent: Rounded | None = None, blocks: int = 0
) -> Bounded:
    scale = math.sqrt(Q.value.shape[-1])
    P = softmax((Q / scale) @ K.mT, mask, blocks)
    found: Bounded = {"answer": P @ V, WEIGHTS: P}
    if cotangent is not None:
        dS = softmax_gradient(P, cotangent @ V.mT)
        gradients = (dS @ (K / scale), dS.mT @ (Q / scale), P.mT @ cotangent)
        for name, x, gradient in zip("QKV", (Q, K, V), gradients, strict=True):
            found[f"gradient of {name}"] = gradient.sum_to(x.value.shape)
    return found

"""Attention that is right but for the type, the inputs, the gradients or the rows with nothing to attend to."""

import math

from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.misconceptions.parts import Misconception, attention, in_attention, scale, softmax

DTYPE_HINT = "Which dtype did Q have, and where does yours change for good?"


def scaling_in_place(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    Q /= math.sqrt(Q.shape[-1])
    return attention(Q, K, V, mask, score=lambda Q, K: Q @ K.mT)


def with_dropout(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, mask, softmax=lambda x, dim: F.dropout(softmax(x, dim), 0.1))


def with_nan(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return softmax(scale(Q, K) if mask is None else scale(Q, K).masked_fill(~mask, -math.inf), -1) @ V


def only_attention(id: str, name: str, hint: str, wrong, sign: str) -> Misconception:
    """Not inside multi-head attention: the projections hide what the sign is about."""
    adapters = {"run_scaled_dot_product_attention": lambda Q, K, V, mask=None: wrong(Q, K, V, mask)}
    return Misconception(id, name, hint, "scaled_dot_product_attention", adapters, sign)


ENTRIES = (
    in_attention(
        "attention-in-place",
        "you changed Q in place",
        "Who else holds the Q that you were given? What does `Q /= c` do that `Q = Q / c` does not?",
        scaling_in_place,
    ),
    only_attention(
        "attention-dropout",
        "you left dropout on",
        "Does your answer change when you call it twice on the same input?",
        with_dropout,
        sign="dropout",
    ),
    in_attention(
        "attention-float64-out",
        "your answer is float64 whatever the inputs are",
        DTYPE_HINT,
        lambda Q, K, V, mask: attention(Q.double(), K.double(), V.double(), mask),
    ),
    in_attention(
        "attention-float32-out",
        "your answer is float32 whatever the inputs are",
        DTYPE_HINT,
        lambda Q, K, V, mask: attention(Q.float(), K.float(), V.float(), mask),
    ),
    in_attention(
        "attention-nan-for-nothing",
        "your answer is NaN where a query may attend to nothing",
        "What is softmax of a row that is all -inf? What should a query get that may attend to nothing?",
        with_nan,
    ),
    in_attention(
        "attention-detached-weights",
        "you cut the weights off from autograd",
        "Which operation of yours does autograd not see? Do Q and K get a gradient?",
        lambda Q, K, V, mask: attention(Q, K, V, mask, softmax=lambda x, dim: softmax(x, dim).detach()),
    ),
    in_attention(
        "attention-detached",
        "you cut the answer off from autograd",
        "Which operation of yours does autograd not see? Print answer.grad_fn after each line.",
        lambda Q, K, V, mask: attention(Q, K, V, mask).detach(),
    ),
)

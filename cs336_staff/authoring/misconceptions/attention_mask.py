"""Attention that takes the mask for something else."""

from functools import partial

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import attention, hide, in_attention, softmax

NONE_HINT = "Which keys may a query attend to when no mask is given?"
AXIS_HINT = "Name the axes of the mask. Which of them is laid along the queries, and which along the keys?"


def lower_triangle(Q: Tensor, K: Tensor) -> Tensor:
    return torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()


def always_causal(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    causal = lower_triangle(Q, K)
    return attention(Q, K, V, causal if mask is None else mask & causal)


def causal_only(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, lower_triangle(Q, K))


def causal_without_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, lower_triangle(Q, K) if mask is None else mask)


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        raise TypeError("bad operand type for unary ~: 'NoneType'")
    return attention(Q, K, V, mask)


def after_softmax(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, mask, hide=lambda scores, mask: scores, softmax=lambda x, dim: _kept(x, mask))


def renormalised(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    def weights(x: Tensor, dim: int) -> Tensor:
        kept = _kept(x, mask)
        return kept / kept.sum(-1, keepdim=True)

    return attention(Q, K, V, mask, hide=lambda scores, mask: scores, softmax=weights)


def on_values(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V if mask is None else V * mask.any(-2).unsqueeze(-1), None)


def _kept(x: Tensor, mask: Tensor | None) -> Tensor:
    return softmax(x, -1) if mask is None else softmax(x, -1) * mask


ENTRIES = (
    in_attention(
        "attention-mask-inverted",
        "you hid what the mask allows and kept what it forbids",
        "What does True mean in the mask: may attend, or may not?",
        partial(attention, hide=lambda scores, mask: hide(scores, ~mask)),
    ),
    in_attention(
        "attention-mask-ignored",
        "you did not use the mask",
        "Does your answer change when the mask changes?",
        lambda Q, K, V, mask: attention(Q, K, V, None),
    ),
    in_attention(
        "attention-mask-after-softmax",
        "you zeroed weights after the softmax, so that the rest no longer sums to 1",
        "What do the weights of one query sum to? When must a key be left out for that sum to stay 1?",
        after_softmax,
    ),
    in_attention(
        "attention-mask-renormalised",
        "you zeroed weights after the softmax and divided by what was left, which may be 0",
        "What is left of a row when the only large score is one that the mask forbids?",
        renormalised,
    ),
    in_attention(
        "attention-mask-added",
        "you added the mask to the scores as 0 and 1",
        "What must be added to a score, for its weight to become exactly 0?",
        partial(attention, hide=lambda scores, mask: scores + mask),
    ),
    in_attention(
        "attention-mask-times-infinity",
        "you multiplied the mask by -inf, and 0 times infinity is NaN",
        "Which score does a key get that the mask allows, when 0 is multiplied by -inf and added to it?",
        partial(attention, hide=lambda scores, mask: scores + (~mask).to(scores.dtype) * -torch.inf),
    ),
    in_attention(
        "attention-mask-on-values",
        "you applied the mask to the values, not to the scores",
        "The mask says something about each query and each key. Which tensor has both axes?",
        on_values,
    ),
    in_attention(
        "attention-mask-required",
        "your code needs a mask, but there may be none (mask=None)",
        NONE_HINT,
        required,
    ),
    in_attention(
        "attention-none-is-causal",
        "you used a causal mask when no mask was given",
        NONE_HINT,
        causal_without_mask,
    ),
    in_attention(
        "attention-always-causal",
        "you added a causal mask of your own to the one that was given",
        "Who decides which keys a query may attend to: attention, or whoever calls it?",
        always_causal,
    ),
    in_attention(
        "attention-causal-instead",
        "you used a causal mask of your own and not the one that was given",
        "Who decides which keys a query may attend to: attention, or whoever calls it?",
        causal_only,
    ),
    in_attention(
        "attention-mask-transposed",
        "you transposed the mask: its rows are queries and its columns keys",
        AXIS_HINT,
        partial(attention, hide=lambda scores, mask: hide(scores, mask.mT)),
    ),
    in_attention(
        "attention-mask-squeezed",
        "you dropped the axes of size 1 from the mask, so that it broadcasts along the wrong axis",
        AXIS_HINT,
        partial(attention, hide=lambda scores, mask: hide(scores, mask.squeeze())),
    ),
    in_attention(
        "attention-mask-of-first-batch",
        "you used the mask of the first sequence for all of them",
        "May two sequences of one batch have different masks?",
        partial(attention, hide=lambda scores, mask: hide(scores, mask[:1] if mask.ndim > 2 else mask)),
    ),
)

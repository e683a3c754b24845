"""Attention between two sequences with a weight, a sequence or a mask in another place."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import Misconception, attention, linear
from cs336_staff.authoring.right_styles import for_heads, multihead_of_two

SEQUENCE_HINT = "Which of query, key and value does each projection take, and which two of them have the same length?"
MASK_HINT = (
    "The scores have the axes (batch, heads, queries, keys). Which of them has your mask, and which must it get?"
)
TRUE_HINT = "What does True mean in this mask: may attend, or may not? Is it the same in PyTorch's own module?"

right = partial(multihead_of_two, attention, linear)


def instead(**others: str) -> Callable[..., Tensor]:
    """An argument in the place of another: `instead(value="key")` averages the keys."""

    def wrong(**arguments: Any) -> Tensor:
        return right(**arguments | {name: arguments[other] for name, other in others.items()})

    return wrong


def padded_keys_zeroed(key: Tensor, value: Tensor, mask: Tensor | None = None, **arguments: Any) -> Tensor:
    if mask is not None and mask.ndim < key.ndim:
        real = mask.unsqueeze(-1)
        return right(key=key * real, value=value * real, **arguments)
    return right(key=key, value=value, mask=mask, **arguments)


def averaged_over_heads(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    weights = attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)
    return weights.mean(-3, keepdim=True) @ V


def always_causal(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    causal = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
    return attention(Q, K, V, causal if mask is None else mask & causal)


def in_multihead_attention(id: str, name: str, hint: str, wrong: Callable[..., Tensor]) -> Misconception:
    return Misconception(id, name, hint, "multihead_attention", {"run_multihead_attention": wrong})


def masked(id: str, name: str, hint: str, mask: Callable[[Tensor, Tensor], Tensor | None]) -> Misconception:
    """`mask(mask, query)` makes the mask that is laid over the scores of all heads."""
    return in_multihead_attention(id, name, hint, partial(right, for_heads=mask))


ENTRIES = (
    in_multihead_attention(
        "cross-keys-by-query-weight",
        "you projected the keys with the weight of the queries",
        "Which of the four weights does your answer not depend on?",
        instead(k_proj_weight="q_proj_weight"),
    ),
    in_multihead_attention(
        "cross-values-from-keys",
        "you took the values from `key`, not from `value`",
        SEQUENCE_HINT,
        instead(value="key"),
    ),
    in_multihead_attention(
        "cross-keys-values-swapped",
        "you swapped `key` and `value`",
        SEQUENCE_HINT,
        instead(key="value", value="key"),
    ),
    in_multihead_attention(
        "cross-self-attention",
        "you took keys and values from `query`, as in self-attention",
        SEQUENCE_HINT,
        instead(key="query", value="query"),
    ),
    in_multihead_attention(
        "cross-causal",
        "you used a causal mask that nobody asked for",
        "Does position 1 of one sequence come before position 2 of another?",
        partial(multihead_of_two, always_causal, linear),
    ),
    in_multihead_attention(
        "cross-weights-averaged",
        "you averaged the weights over the heads before you used them",
        "What is left of the heads when all of them look at the same keys?",
        partial(multihead_of_two, averaged_over_heads, linear),
    ),
    in_multihead_attention(
        "cross-padding-zeroed",
        "you made the padded keys and values 0 and did not mask their scores",
        "What is the score of a key that is all zeros, and what does softmax make of it?",
        padded_keys_zeroed,
    ),
    masked(
        "cross-padding-inverted",
        "you read the padding mask as True where there is padding",
        TRUE_HINT,
        lambda mask, query: for_heads(~mask if mask.ndim < query.ndim else mask, query),
    ),
    masked(
        "cross-mask-inverted",
        "you read every mask as True where a query may not attend",
        TRUE_HINT,
        lambda mask, query: for_heads(~mask, query),
    ),
    masked("cross-mask-ignored", "you accepted the mask and left it unused", MASK_HINT, lambda mask, query: None),
    masked(
        "cross-padding-along-queries",
        "you laid the padding mask along the queries, not along the keys",
        MASK_HINT,
        lambda mask, query: mask[..., None, :, None] if mask.ndim < query.ndim else for_heads(mask, query),
    ),
    masked(
        "cross-padding-of-first-sequence",
        "you used the padding of the first sequence for all of them",
        "May two sequences of one batch have different lengths?",
        lambda mask, query: for_heads(mask, query)[:1] if mask.ndim < query.ndim else for_heads(mask, query),
    ),
    masked(
        "cross-mask-of-first-head",
        "you used the mask of the first head for all of them",
        "May two heads have different masks?",
        lambda mask, query: for_heads(mask, query)[..., :1, :, :],
    ),
    masked(
        "cross-batch-of-mask-meets-heads",
        "the batch of your mask meets the axis of the heads",
        MASK_HINT,
        lambda mask, query: mask if mask.ndim == query.ndim else for_heads(mask, query),
    ),
)

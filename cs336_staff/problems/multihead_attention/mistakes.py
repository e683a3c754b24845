"""Attention between two sequences that is wrong."""

from functools import partial
from typing import Any

from torch import Tensor

from cs336_staff.authoring.room import Misconception, Part, wrong
from cs336_staff.problems.linear.programs import linear
from cs336_staff.problems.multihead_attention.programs import for_heads, multihead_of_two
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, causal, weigh

right = partial(multihead_of_two, attention, linear)


def instead(**others: str) -> Part:
    """An argument in the place of another: `instead(value="key")` averages the keys."""
    return lambda **arguments: right(**arguments | {name: arguments[other] for name, other in others.items()})


def padded_keys_zeroed(key: Tensor, value: Tensor, mask: Tensor | None = None, **arguments: Any) -> Tensor:
    if mask is not None and mask.ndim < key.ndim:
        real = mask.unsqueeze(-1)
        return right(key=key * real, value=value * real, **arguments)
    return right(key=key, value=value, mask=mask, **arguments)


def always_causal(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    lower = causal(Q.shape[-2], K.shape[-2])
    return attention(Q, K, V, lower if mask is None else mask & lower)


def averaged_over_heads(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return weigh(Q, K, mask).mean(-3, keepdim=True) @ V


def in_mask(id: str, what: str, for_heads: Part) -> Misconception:
    """A wrong `for_heads(mask, query)`, which makes the mask that is laid over the scores of all heads."""
    return wrong(id, what, partial(right, for_heads=for_heads))


MISTAKES = (
    wrong(
        "cross-keys-by-query-weight",
        "projects the keys with the weight of the queries",
        instead(k_proj_weight="q_proj_weight"),
    ),
    wrong("cross-values-from-keys", "takes the values from `key`, not from `value`", instead(value="key")),
    wrong("cross-keys-values-swapped", "swaps `key` and `value`", instead(key="value", value="key")),
    wrong(
        "cross-self-attention",
        "takes keys and values from `query`, as in self-attention",
        instead(key="query", value="query"),
    ),
    wrong(
        "cross-causal",
        "uses a causal mask that nobody asked for",
        partial(multihead_of_two, always_causal, linear),
    ),
    wrong(
        "cross-weights-averaged",
        "averages the weights over the heads before using them",
        partial(multihead_of_two, averaged_over_heads, linear),
    ),
    wrong(
        "cross-padding-zeroed",
        "makes the padded keys and values 0 and does not mask their scores",
        padded_keys_zeroed,
    ),
    in_mask(
        "cross-padding-inverted",
        "reads the padding mask as True where there is padding",
        lambda mask, query: for_heads(~mask if mask.ndim < query.ndim else mask, query),
    ),
    in_mask(
        "cross-mask-inverted",
        "reads every mask as True where a query may not attend",
        lambda mask, query: for_heads(~mask, query),
    ),
    in_mask("cross-mask-ignored", "accepts the mask and leaves it unused", lambda mask, query: None),
    in_mask(
        "cross-padding-along-queries",
        "lays the padding mask along the queries, not along the keys",
        lambda mask, query: mask[..., None, :, None] if mask.ndim < query.ndim else for_heads(mask, query),
    ),
    in_mask(
        "cross-padding-of-first-sequence",
        "uses the padding of the first sequence for all of them",
        lambda mask, query: for_heads(mask, query)[:1] if mask.ndim < query.ndim else for_heads(mask, query),
    ),
    in_mask(
        "cross-mask-of-first-head",
        "uses the mask of the first head for all of them",
        lambda mask, query: for_heads(mask, query)[..., :1, :, :],
    ),
    in_mask(
        "cross-batch-of-mask-meets-heads",
        "lays the batch of the mask along the axis of the heads",
        lambda mask, query: mask if mask.ndim == query.ndim else for_heads(mask, query),
    ),
)

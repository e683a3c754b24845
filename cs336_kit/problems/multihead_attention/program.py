"""Attention between two sequences in steps, those of self-attention, and the mistakes that it adds."""

import torch
from torch import Tensor

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Table, Way, Ways, ways_to
from cs336_kit.problems.multihead_self_attention import program as heads
from cs336_kit.problems.scaled_dot_product_attention import program as attention


def multihead_of_two(
    ways: Ways,
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention whose steps are done in these ways."""
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return heads.attend_in_heads(
        ways, num_heads, weights, (query, key, value), lambda Q, K: ways["allowed"](mask, Q, K)
    )


def for_heads(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor | None:
    """A mask that broadcasts to (..., heads, queries, keys)."""
    if mask is None:
        return None
    if mask.ndim == Q.ndim - PADDING:
        mask = mask.unsqueeze(-2)
    return mask.unsqueeze(-3) if mask.ndim == Q.ndim - MASK else mask


PADDING, MASK, OF_HEADS = 2, 1, 0  # dimensions that a mask has fewer than the queries of all heads
KINDS = {
    "masks": ("Every mask", (PADDING, MASK, OF_HEADS)),
    "padding": ("A padding mask (batch, keys)", (PADDING,)),
    "mask": ("A mask (batch, queries, keys)", (MASK,)),
    "head-mask": ("A mask (batch, heads, queries, keys)", (OF_HEADS,)),
}
RIGHT: Ways = {**heads.RIGHT, "allowed": for_heads, "empty": attention.RIGHT["empty"]}


def read_as(kind: str, way: Way) -> Way:
    """Masks of this kind made into something else than the right mask of the scores."""

    def allowed(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor | None:
        right = for_heads(mask, Q, K)
        return right if mask is None or Q.ndim - mask.ndim not in KINDS[kind][1] else way(right)

    return allowed


def by_dimensions(mask: Tensor) -> Tensor:
    """A mask of two dimensions as a padding mask, one of three as the same for all heads."""
    return mask.view(mask.shape[0], *(1,) * (4 - mask.ndim), *mask.shape[1:]) if mask.ndim in (2, 3) else mask


def causal_too(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor:
    right, earlier = for_heads(mask, Q, K), torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
    return earlier if right is None else right & earlier


def padding_zeroed(S: Tensor, mask: Tensor, softmax: Way) -> Tensor:
    """The weights where keys and values that are padding are 0, and other masks are as they should be."""
    is_padding = mask.shape[-2] == 1
    return softmax(S * mask) * mask if is_padding else RIGHT["hide"](S, mask, softmax)


# Ways to read a mask of one of these kinds.
READINGS: tuple[tuple[str, str, Way, tuple[str, ...]], ...] = (
    ("ignored", "is accepted and not used.", lambda mask: None, ("masks", "padding", "mask", "head-mask")),
    ("inverted", "is read as if True meant: may not attend.", torch.logical_not, ("masks", "padding", "mask")),
    ("along-queries", "is laid along the queries, not along the keys.", lambda mask: mask.mT, ("padding", "masks")),
    (
        "of-first-sequence",
        "is read for the first sequence, and used for all of them.",
        lambda mask: mask[:1],
        ("masks", "padding", "mask"),
    ),
    (
        "of-first-head",
        "is read for the first head, and used for all of them.",
        lambda mask: mask[..., :1, :, :],
        ("head-mask",),
    ),
    (
        "meets-heads",
        "has its batch axis lined up with the axis of the heads.",
        lambda mask: mask.squeeze(-3),
        ("mask", "padding"),
    ),
    (
        "meets-queries",
        "has its batch axis lined up with the axis of the queries.",
        lambda mask: mask.squeeze(-2).squeeze(-2),
        ("padding",),
    ),
)
ALLOWED = ways_to(
    "allowed",
    "The scores have axes (batch, heads, queries, keys). Which of them does this mask have? What does True mean?",
    ("causal", "There is a causal mask that nobody asked for.", causal_too),
    (
        "causal-without-mask",
        "Without a mask there is a causal one that nobody asked for.",
        lambda mask, Q, K: causal_too(mask, Q, K) if mask is None else for_heads(mask, Q, K),
    ),
    (
        "all-padding",
        "Every mask is taken for a padding mask (batch, keys).",
        lambda mask, Q, K: None if mask is None else mask[..., None, None, :],
    ),
    (
        "kind-by-dimensions",
        "What a mask means is told from its own number of dimensions, as if `query` always had three.",
        lambda mask, Q, K: None if mask is None else by_dimensions(mask),
    ),
    *(
        (f"{kind}-{id}", f"{KINDS[kind][0]} {says}", read_as(kind, way))
        for id, says, way, kinds in READINGS
        for kind in kinds
    ),
)
HIDE = ways_to(
    "hide",
    "What is the score of a key that is all zeros, and what does softmax make of it?",
    (
        "padding-keeps-weight",
        "Keys that are padding still take up some of the weight: their values are gone, their scores are not.",
        padding_zeroed,
    ),
)
SEQUENCES = ways_to(
    "sequences",
    "Which of query, key and value does each projection take, and which two of them have the same length?",
    ("self-attention", "You take keys and values from `query`, as in self-attention.", lambda q, k, v: (q, q, q)),
    ("values-from-key", "You take the values from `key`.", lambda q, k, v: (q, k, k)),
    ("keys-values-swapped", "You swap `key` and `value`.", lambda q, k, v: (q, v, k)),
    ("keys-from-value", "You take the keys from `value`.", lambda q, k, v: (q, v, v)),
    ("keys-from-query", "You take the keys from `query`.", lambda q, k, v: (q, q, v)),
    ("queries-keys-swapped", "You swap `query` and `key`.", lambda q, k, v: (k, q, v)),
)

# The calls: sizes that are all different, and some that are alike.


def call(*batch: int, queries: int = 5, keys: int = 7, size: float = 0.5, heads: int = 3) -> tuple:
    """The arguments of a call without a mask."""
    weights = size * random(6, 4, 12, 12)
    sequences = (random(seed, *batch, length, 12) for seed, length in ((7, queries), (8, keys), (9, keys)))
    return 12, heads, *weights, *sequences


def some(*shape: int) -> Tensor:
    """A mask with which every query sees something, and not everything."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(7)) < 0.5
    mask[..., 0], mask[..., -1] = True, False
    return mask


BATCH, SQUARE = call(2), call(3, queries=3, keys=3)
THROUGHOUT = torch.arange(2).unsqueeze(-1).expand(2, 7) > 0
WITHOUT_MASK = {
    "Without a batch": call(),
    "For a batch of two": BATCH,
    "For two heads": call(heads=2),
    "For three sequences of length three": SQUARE,
}
CALLS = {
    **WITHOUT_MASK,
    heads.HIGH: call(size=4.0),
    "With a mask (batch, queries, keys)": (*BATCH, some(2, 5, 7)),
    "With a mask that is the same for all sequences": (*BATCH, some(1, 5, 7)),
    "With a mask for each head": (*BATCH, some(2, 3, 5, 7)),
    "With a padding mask": (*BATCH, some(2, 7)),
    "With a padding mask and no batch": (*call(), some(7)),
    "With a padding mask for a batch of 2 by 3": (*call(2, 3), some(2, 3, 7)),
    "For a sequence that is padding throughout": (*BATCH, THROUGHOUT),
    "With a mask (batch, queries, keys) of size 3": (*SQUARE, some(3, 3, 3)),
    "With a mask for each head of size 3": (*SQUARE, some(3, 3, 3, 3)),
    "With a padding mask of size 3": (*SQUARE, some(3, 3)),
}
NOTHING = ways_to(
    "empty",
    "What is the softmax of scores that are all the same? What should a query get that may attend to nothing?",
    (
        "nothing-mean",
        "A query that may attend to nothing attends to all keys.",
        lambda W, mask: W.where(mask.any(-1, keepdim=True), 1 / W.shape[-1]),
    ),
)

TABLE = Table(
    multihead_of_two,
    RIGHT,
    (*SEQUENCES, *heads.IN_HEADS, *ALLOWED, *HIDE, *heads.IN_ATTENTION, *attention.EMPTY, *NOTHING),
    CALLS,
    frozenset(WITHOUT_MASK),
    attention.ALSO_RIGHT,
    "without a mask",
    ("For a batch of two", "For two heads"),
    cuts=heads.CUTS,
)

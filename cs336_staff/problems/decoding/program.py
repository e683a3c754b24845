"""Decoding in steps, those of multi-head attention, and the mistakes that it adds.

The right steps are torch's own functions, most of which a student may not call.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.table import Way, Ways, ways_to
from cs336_staff.problems.multihead_self_attention import program as heads

Pair = tuple[Tensor, Tensor]  # keys and values


def decode(
    ways: Ways,
    d_model: int,
    num_heads: int,
    num_kv_heads: int,
    window: int | None,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    keys: Tensor | None = None,
    values: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One call: the answer, and the keys and values of the new cache."""
    past = 0 if keys is None else keys.shape[-2]
    weights = ways["projections"](q_proj_weight, k_proj_weight, v_proj_weight, num_heads)
    Q, K, V = (
        ways["split"](ways["linear"](in_features, W), count)
        for W, count in zip(weights, (num_heads, num_kv_heads, num_kv_heads), strict=True)
    )

    def rotate(x: Tensor, first: int = past) -> Tensor:
        return ways["rotate"](x, ways["positions"](first, x), theta, max_seq_len)

    of_Q, of_K, of_V = ways["turn"](rotate)
    before = (K[..., :0, :], V[..., :0, :]) if keys is None or values is None else (keys, values)
    seen, kept = ways["cache"](before, (K, of_V(V)), of_K)
    shared = (ways["share"](x, num_heads) for x in seen)
    joined = ways["merge"](ways["attend"](ways, of_Q(Q), *shared, ways["allowed"](past, window, Q, seen[0])))
    return ways["joined"](ways["linear"], joined, o_proj_weight, num_heads), *(ways["keep"](x, window) for x in kept)


def behind(before: Pair, new: Pair) -> Pair:
    """New rows behind those of the cache, for keys and for values."""
    K, V = (
        F.pad(x, (0, 0, 0, y.shape[-2])) + F.pad(y, (0, 0, x.shape[-2], 0)) for x, y in zip(before, new, strict=True)
    )
    return K, V


def lent(x: Tensor, num_heads: int) -> Tensor:
    """The head of keys or values that each query head uses."""
    *batch, kv_heads, tokens, d_k = x.shape
    of_heads = F.interpolate(x.reshape(-1, kv_heads, tokens * d_k).mT, num_heads)
    return of_heads.mT.reshape(*batch, num_heads, tokens, d_k)


def alike(x: Pair) -> tuple[Pair, Pair]:
    """The same for the pair that is attended to and for the one that is kept."""
    return x, x


def distance(past: int, Q: Tensor, K: Tensor) -> Tensor:
    """The number of places that each key lies behind each query."""
    return torch.arange(past, past + Q.shape[-2]).unsqueeze(-1) - torch.arange(K.shape[-2])


def within(back: Callable[[int, Tensor, Tensor], Tensor], first: int = 0, more: int = 0) -> Way:
    """A mask of the keys that lie at least `first` behind, and so many more than a window would have."""

    def allowed(past: int, window: int | None, Q: Tensor, K: Tensor) -> Tensor:
        d = back(past, Q, K)
        return d.ge(first) if window is None else d.ge(first) & d.lt(window + more)

    return allowed


def unchanged(x: Tensor, first: int = 0) -> Tensor:
    return x


RIGHT: Ways = {
    **heads.RIGHT,
    "positions": lambda first, x: first + torch.arange(x.shape[-2]),
    "turn": lambda rotate: (rotate, rotate, unchanged),
    "cache": lambda before, new, turn: alike(behind(before, (turn(new[0]), new[1]))),
    "keep": lambda x, window: x,
    "share": lent,
    "allowed": within(distance),
}

POSITIONS = ways_to(
    "positions",
    ("positions-restart", lambda first, x: torch.arange(x.shape[-2])),
    ("position-late", lambda first, x: first + bool(first) + torch.arange(x.shape[-2])),
    ("position-early", lambda first, x: first - bool(first) + torch.arange(x.shape[-2])),
    ("positions-from-1", lambda first, x: first + 1 + torch.arange(x.shape[-2])),
    ("positions-alike", lambda first, x: torch.full((x.shape[-2],), first)),
    ("positions-last", lambda first, x: torch.full((x.shape[-2],), first + x.shape[-2] - 1)),
)
TURN = ways_to(
    "turn",
    ("rope-missing", lambda rotate: (unchanged, unchanged, unchanged)),
    ("rope-on-values", lambda rotate: (rotate, rotate, rotate)),
    ("rope-on-queries-only", lambda rotate: (rotate, unchanged, unchanged)),
    ("rope-on-keys-only", lambda rotate: (unchanged, rotate, unchanged)),
)


def all_turned(before: Pair, new: Pair, turn: Way) -> Pair:
    """All keys, those of the cache too, rotated by their place among them."""
    K, V = behind(before, new)
    return turn(K, 0), V


def turned(new: Pair, turn: Way) -> Pair:
    return turn(new[0]), new[1]


def overwritten(before: Pair, new: Pair) -> Pair:
    """The new rows begin at the last one of the cache, where there is one, and as many as that stay zeros."""

    def write(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat((x[..., :-1, :], y, torch.zeros_like(x[..., :1, :])), -2)

    return write(before[0], new[0]), write(before[1], new[1])


CACHE = (
    *ways_to(
        "cache",
        ("cache-turned-again", lambda before, new, turn: alike(all_turned(before, new, turn))),
        (
            "cache-turned-twice",
            lambda before, new, turn: (all_turned(before, turned(new, turn), turn), behind(before, turned(new, turn))),
        ),
        ("cache-not-turned", lambda before, new, turn: (behind(before, turned(new, turn)), behind(before, new))),
        ("cache-turned-when-used", lambda before, new, turn: (all_turned(before, new, turn), behind(before, new))),
    ),
    *ways_to(
        "cache",
        ("cache-in-front", lambda before, new, turn: alike(behind(turned(new, turn), before))),
        ("cache-overwritten", lambda before, new, turn: alike(overwritten(before, turned(new, turn)))),
        ("cache-replaced", lambda before, new, turn: (behind(before, turned(new, turn)), turned(new, turn))),
        (
            "cache-not-longer",
            lambda before, new, turn: (
                behind(before, turned(new, turn)),
                before if before[0].shape[-2] else turned(new, turn),
            ),
        ),
    ),
    *ways_to(
        "cache",
        ("cache-swapped", lambda before, new, turn: alike(behind((before[1], before[0]), turned(new, turn)))),
        (
            "cache-returned-swapped",
            lambda before, new, turn: (behind(before, turned(new, turn)), behind(before, turned(new, turn))[::-1]),
        ),
    ),
)
KEEP = ways_to("keep", ("cache-cut", lambda x, window: x if window is None else x[..., -window:, :]))
SHARE = ways_to(
    "share",
    ("heads-repeated", lambda x, num_heads: torch.cat([x] * (num_heads // x.shape[-3]), -3)),
    ("heads-first", lambda x, num_heads: x[..., :1, :, :]),
    ("heads-averaged", lambda x, n: x.mean(-3, keepdim=True)),
)


def from_the_first(past: int, Q: Tensor, K: Tensor) -> Tensor:
    return distance(0, Q, K)


def unless(stop: Callable[[int, Tensor, Tensor], Any], otherwise: Way) -> Way:
    """A mask that is right but where this holds."""
    right = RIGHT["allowed"]

    def allowed(past: int, window: int | None, Q: Tensor, K: Tensor) -> Tensor:
        there = torch.as_tensor(stop(past, Q, K))
        return otherwise(past, window, Q, K).where(there, right(past, window, Q, K))

    return allowed


def everything(past: int, window: int | None, Q: Tensor, K: Tensor) -> Tensor:
    return torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)


def nothing(past: int, window: int | None, Q: Tensor, K: Tensor) -> Tensor:
    return ~everything(past, window, Q, K)


def causal(past: int, window: int | None, Q: Tensor, K: Tensor) -> Tensor:
    return within(distance)(past, None, Q, K)


ALLOWED = (
    *ways_to(
        "allowed",
        ("mask-missing", everything),
        ("mask-top-left", within(from_the_first)),
        ("mask-first-call-only", unless(lambda past, Q, K: past > 0, everything)),
        ("cache-unseen", unless(lambda past, Q, K: torch.arange(K.shape[-2]) < past, nothing)),
        ("new-unseen", unless(lambda past, Q, K: (torch.arange(K.shape[-2]) >= past) & (past > 0), nothing)),
        ("mask-peeks", within(distance, -1)),
        ("mask-strict", within(distance, 1)),
    ),
    *ways_to(
        "allowed",
        ("window-ignored", causal),
        ("window-long", within(distance, more=1)),
        ("window-short", within(distance, more=-1)),
        ("window-forgets-cache", unless(lambda past, Q, K: torch.arange(K.shape[-2]) < past, causal)),
        ("window-in-cache-only", unless(lambda past, Q, K: torch.arange(K.shape[-2]) >= past, causal)),
        ("window-in-steps-only", unless(lambda past, Q, K: Q.shape[-2] > 1, causal)),
        (
            "window-not-causal",
            lambda past, window, Q, K: causal(past, None, Q, K) if window is None else distance(past, Q, K) < window,
        ),
        (
            "window-both-sides",
            lambda past, window, Q, K: (
                causal(past, None, Q, K) if window is None else distance(past, Q, K).abs() < window
            ),
        ),
    ),
)
PROJECTIONS = tuple(row for row in heads.WEIGHTS if row.id in ("keys-values-swapped", "values-by-k"))
SPLIT = tuple(row for row in heads.SPLIT if row.id != "one-head")
ROTATE = tuple(row for row in heads.ROTATE if row.id != "rope-along-heads")  # which fails with groups
OWN = (*POSITIONS, *TURN, *CACHE, *KEEP, *SHARE, *ALLOWED, *ROTATE)
OF_HEADS = (*PROJECTIONS, *SPLIT, *heads.SCALE, *heads.MERGE, *heads.JOINED)

# The calls: sizes that are all different, and some that are alike.

D_MODEL, HEADS = 24, 6

"""Decoding in steps, those of multi-head attention, and the mistakes that it adds.

The right steps are torch's own functions, most of which a student may not call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Table, Way, Ways, ways_to
from cs336_kit.problems.multihead_self_attention import program as heads
from cs336_kit.problems.multihead_self_attention.examination import WEIGHTS

NAMES = (
    *("d_model", "num_heads", "num_kv_heads", "window", "max_seq_len", "theta", *WEIGHTS),
    *("in_features", "lengths", "part", "keys", "values"),
)
Pair = tuple[Tensor, Tensor]  # keys and values


def run(ways: Ways, *arguments: Any, **named: Any) -> Any:
    """Decode in steps that are done in these ways: one call as the tests make it, or, given lengths, one in pieces."""
    named |= dict(zip(NAMES, arguments, strict=False))
    return (in_pieces if "lengths" in named else lambda step, **inputs: step(**inputs))(partial(decode, ways), **named)


def in_pieces(
    step: Callable[..., Any],
    *,
    in_features: Tensor,
    lengths: Sequence[int],
    part: int = 0,
    keys: Tensor | None = None,
    values: Tensor | None = None,
    **sizes: Any,
) -> Tensor:
    """The answers to a sequence that is cut into pieces; or the keys, part 1, or values, part 2, that are kept."""
    answers, cache = [], [keys, values]
    for piece in in_features.split(lengths, -2):
        answer, *cache = step(**sizes, in_features=piece, keys=cache[0], values=cache[1])
        answers.append(answer)
    return [torch.cat(answers, -2), *cache][part]


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
    "At which position does the first of the new tokens stand, when the cache holds three?",
    (
        "positions-restart",
        "Every call counts its tokens from 0, whatever the cache holds.",
        lambda first, x: torch.arange(x.shape[-2]),
    ),
    (
        "position-late",
        "Behind a cache, positions are one too large.",
        lambda first, x: first + bool(first) + torch.arange(x.shape[-2]),
    ),
    (
        "position-early",
        "Behind a cache, positions are one too small: the first new token gets that of the last in the cache.",
        lambda first, x: first - bool(first) + torch.arange(x.shape[-2]),
    ),
    ("positions-from-1", "Positions count from 1.", lambda first, x: first + 1 + torch.arange(x.shape[-2])),
    (
        "positions-alike",
        "All tokens of a call get the position of the first one.",
        lambda first, x: torch.full((x.shape[-2],), first),
    ),
    (
        "positions-last",
        "All tokens of a call get the position of the last one.",
        lambda first, x: torch.full((x.shape[-2],), first + x.shape[-2] - 1),
    ),
)
TURN = ways_to(
    "turn",
    "Which of the new queries, keys and values does RoPE rotate?",
    ("rope-missing", "Neither queries nor keys are rotated.", lambda rotate: (unchanged, unchanged, unchanged)),
    ("rope-on-values", "The values are rotated, too.", lambda rotate: (rotate, rotate, rotate)),
    ("rope-on-queries-only", "You rotate the queries and not the keys.", lambda rotate: (rotate, unchanged, unchanged)),
    ("rope-on-keys-only", "You rotate the keys and not the queries.", lambda rotate: (unchanged, rotate, unchanged)),
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
        "Is a key in the cache one from before RoPE, or from after it? When is it rotated, and how often?",
        (
            "cache-turned-again",
            "The keys of the cache are rotated again in every call, together with the new ones.",
            lambda before, new, turn: alike(all_turned(before, new, turn)),
        ),
        (
            "cache-turned-twice",
            "The keys are rotated before they are kept, and all of them again when they are used.",
            lambda before, new, turn: (
                all_turned(before, turned(new, turn), turn),
                behind(before, turned(new, turn)),
            ),
        ),
        (
            "cache-not-turned",
            "The new keys go into the cache before they are rotated, and a later call uses them like that.",
            lambda before, new, turn: (behind(before, turned(new, turn)), behind(before, new)),
        ),
        (
            "cache-turned-when-used",
            "You keep the keys as they are before RoPE, and rotate all of them in every call. They should be rotated "
            "once, before they are kept.",
            lambda before, new, turn: (all_turned(before, new, turn), behind(before, new)),
        ),
    ),
    *ways_to(
        "cache",
        "Which rows does the cache have after a call, in which order? Which of them do the new tokens attend to?",
        (
            "cache-in-front",
            "The new rows stand in front of those of the cache.",
            lambda before, new, turn: alike(behind(turned(new, turn), before)),
        ),
        (
            "cache-overwritten",
            "The new rows begin one row early, at the last one of the cache, and the last row is left 0.",
            lambda before, new, turn: alike(overwritten(before, turned(new, turn))),
        ),
        (
            "cache-replaced",
            "You return the new rows alone: the cache forgets what came before.",
            lambda before, new, turn: (behind(before, turned(new, turn)), turned(new, turn)),
        ),
        (
            "cache-not-longer",
            "You return the cache that came in: the new rows are not in it.",
            lambda before, new, turn: (
                behind(before, turned(new, turn)),
                before if before[0].shape[-2] else turned(new, turn),
            ),
        ),
    ),
    *ways_to(
        "cache",
        "In which order do keys and values come in, and in which do they go out?",
        (
            "cache-swapped",
            "The keys of the cache are taken for its values, and the values for its keys.",
            lambda before, new, turn: alike(behind((before[1], before[0]), turned(new, turn))),
        ),
        (
            "cache-returned-swapped",
            "You return the values before the keys.",
            lambda before, new, turn: (
                behind(before, turned(new, turn)),
                behind(before, turned(new, turn))[::-1],
            ),
        ),
    ),
)
KEEP = ways_to(
    "keep",
    "Where does your code read off at which position the next token stands? Is that still so in a cache that was cut?",
    (
        "cache-cut",
        "You keep as many rows as the window has, and take their number for that of all tokens before.",
        lambda x, window: x if window is None else x[..., -window:, :],
    ),
)
SHARE = ways_to(
    "share",
    "Four query heads share two key/value heads. Which one does head 1 use?",
    (
        "heads-repeated",
        "Neighbouring query heads use different key/value heads, as after `repeat`; a group should be neighbours.",
        lambda x, num_heads: torch.cat([x] * (num_heads // x.shape[-3]), -3),
    ),
    ("heads-first", "All query heads use the first key/value head.", lambda x, num_heads: x[..., :1, :, :]),
    ("heads-averaged", "All query heads use the mean of the key/value heads.", lambda x, n: x.mean(-3, keepdim=True)),
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
        "In a call with 3 tokens in the cache and 2 new ones, which of the 5 keys may each new token attend to?",
        ("mask-missing", "No token is hidden from any other.", everything),
        (
            "mask-top-left",
            "The causal mask begins at the first key: the first new token sees that one alone, whatever the cache "
            "holds.",
            within(from_the_first),
        ),
        (
            "mask-first-call-only",
            "Behind a cache nothing is hidden: of several new tokens each sees the later ones, and there is no window.",
            unless(lambda past, Q, K: past > 0, everything),
        ),
        (
            "cache-unseen",
            "The new tokens do not attend to those of the cache.",
            unless(lambda past, Q, K: torch.arange(K.shape[-2]) < past, nothing),
        ),
        (
            "new-unseen",
            "Behind a cache, the new tokens attend to those of the cache and not to themselves.",
            unless(lambda past, Q, K: (torch.arange(K.shape[-2]) >= past) & (past > 0), nothing),
        ),
        ("mask-peeks", "The mask is shifted by one: every token sees the next one.", within(distance, -1)),
        ("mask-strict", "The mask is shifted by one: no token sees itself.", within(distance, 1)),
    ),
    *ways_to(
        "allowed",
        "With a window of 2, which tokens does token 5 attend to? How many are they?",
        ("window-ignored", "There is no window in effect.", causal),
        ("window-long", "The window is one token too long.", within(distance, more=1)),
        ("window-short", "The window is one token too short.", within(distance, more=-1)),
        (
            "window-forgets-cache",
            "The window hides none of the keys in the cache.",
            unless(lambda past, Q, K: torch.arange(K.shape[-2]) < past, causal),
        ),
        (
            "window-in-cache-only",
            "The window hides keys of the cache alone, and none of the new ones.",
            unless(lambda past, Q, K: torch.arange(K.shape[-2]) >= past, causal),
        ),
        (
            "window-in-steps-only",
            "There is a window where a single token comes, and none where several do.",
            unless(lambda past, Q, K: Q.shape[-2] > 1, causal),
        ),
        (
            "window-not-causal",
            "With a window the mask is no longer causal: it hides what is far away, and not what is ahead.",
            lambda past, window, Q, K: causal(past, None, Q, K) if window is None else distance(past, Q, K) < window,
        ),
        (
            "window-both-sides",
            "The window reaches as far ahead as back.",
            lambda past, window, Q, K: (
                causal(past, None, Q, K) if window is None else distance(past, Q, K).abs() < window
            ),
        ),
    ),
)
PROJECTIONS = tuple(row for row in heads.WEIGHTS if row.id in ("keys-values-swapped", "values-by-k"))
SPLIT = tuple(row for row in heads.SPLIT if row.id != "one-head")
ROTATE = tuple(
    replace(row, says=row.says.replace("d_model", "all heads together").replace("d_head", "one head"))
    for row in heads.ROTATE
    if row.id != "rope-along-heads"  # which fails with groups
)
OWN = (*POSITIONS, *TURN, *CACHE, *KEEP, *SHARE, *ALLOWED, *ROTATE)
OF_HEADS = (*PROJECTIONS, *SPLIT, *heads.SCALE, *heads.MERGE, *heads.JOINED)

# The calls: sizes that are all different, and some that are alike.

D_MODEL, HEADS = 24, 6


def call(
    *lengths: int,
    kv: int = HEADS,
    window: int | None = None,
    part: int = 0,
    num_heads: int = HEADS,
    batch: tuple[int, ...] = (),
    past: int = 0,
    size: float = 0.4,
    theta: float = heads.THETA,
) -> tuple[Any, ...]:
    """The arguments of a call in pieces of these lengths, behind a cache of so many tokens."""
    d_k = D_MODEL // num_heads
    rows = (D_MODEL, d_k * kv, d_k * kv, D_MODEL)
    of_heads = (size * random(seed, count, D_MODEL) for seed, count in enumerate(rows))
    x = random(4, *batch, sum(lengths), D_MODEL)
    cache = random(5, 2, *batch, kv, past, d_k).unbind() if past else ()
    return D_MODEL, num_heads, kv, window, heads.MAX_SEQ_LEN, theta, *of_heads, x, lengths, part, *cache


IN_ONE_CALL = {
    "For one token": call(1),
    "For five tokens": call(5),
    "For four heads": call(7, kv=4, num_heads=4),
}
CALLS = {
    **IN_ONE_CALL,
    "For a batch of 2 by 3": call(5, batch=(2, 3)),
    heads.HIGH: call(5, size=3.0),
    "For theta = 9": call(5, theta=heads.OTHER_THETA),
    "For six heads that share two of keys and values": call(5, kv=2),
    "For six heads that share three": call(4, kv=3),
    "With a window of 2": call(5, window=2),
    "In pieces of 3, 1 and 1 tokens": call(3, 1, 1),
    "In pieces of 2 and 3 tokens": call(2, 3),
    "Token by token, with a window of 2": call(*[1] * 5, kv=2, window=2),
    "In pieces of 3 and 4 tokens, with a window of 3": call(3, 4, kv=3, window=3, batch=(2,)),
    "For two tokens behind a cache of three": call(2, kv=2, past=3),
    "For the keys that you return after 2 and 3 tokens": call(2, 3, kv=2, part=1),
    "For the values that you return after 2 and 3 tokens": call(2, 3, kv=2, part=2),
}
TABLE = Table(
    run,
    RIGHT,
    (*OWN, *OF_HEADS, *heads.IN_ATTENTION, *heads.OF_ROPE),
    CALLS,
    frozenset(IN_ONE_CALL),
    heads.ALSO_RIGHT,
    "in one call, with neither groups nor a window",
    tuple(IN_ONE_CALL)[1:],
    cuts=heads.CUTS,
    most_runs=3_000,  # each takes a millisecond
)

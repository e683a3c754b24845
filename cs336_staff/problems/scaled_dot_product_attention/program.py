"""Attention in steps, and the mistakes that can be made in each.

The right steps are torch's own functions, which a student may not call.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cs336_staff.authoring.table import Change, Table, Way, Ways, sloped, ways_to
from cs336_staff.problems.softmax import program as softmax_in_steps

INF = math.inf
DECADES = tuple(10.0**k for k in range(-2, 13))


def attend(ways: Ways, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention whose steps are done in these ways."""
    q, k, v = ways["inputs"](Q, K, V)
    before, after = ways["scaled"](ways["scale"](q, k, v))
    scores = ways["limit"](ways["slope"](ways["score"](q, k) * before, q, k))
    allowed = ways["mask"](mask, scores)
    if allowed is None:
        weights = ways["guard"](ways["softmax"](scores))
    else:
        weights = ways["empty"](ways["guard"](ways["hide"](scores, allowed, ways["softmax"])), allowed)
    return ways["output"](ways["weights"](weights, q) * after, v, q, allowed)


RIGHT: Ways = {
    "inputs": lambda Q, K, V: (Q, K, V),
    "score": lambda Q, K: Q @ K.mT,
    "scale": lambda Q, K, V: Q.shape[-1] ** -0.5,
    "scaled": lambda scale: (scale, 1.0),
    "slope": lambda S, Q, K: S,
    "limit": lambda S: S,
    "mask": lambda mask, S: mask,
    "hide": lambda S, mask, softmax: softmax(S.masked_fill(~mask, -INF)),
    "softmax": lambda S: torch.softmax(S, -1),
    "guard": lambda W: W,
    "empty": lambda W, mask: W.where(mask.any(-1, keepdim=True) | ~W.isnan(), 0.0),
    "weights": lambda W, Q: W,
    "output": lambda W, V, Q, mask: W @ V,
}
# A row with nothing to attend to may be known by its mask, or by its NaN.
ALSO_RIGHT: tuple[Ways, ...] = (
    {"empty": lambda W, mask: W.where(mask.any(-1, keepdim=True), 0.0)},
    {"guard": lambda W: W.nan_to_num(0.0)},
)


def where_given(way: Way) -> Way:
    return lambda mask, S: mask if mask is None else way(mask, S)


def causal(S: Tensor) -> Tensor:
    return torch.ones(S.shape[-2:], dtype=torch.bool).tril()


def diagonal(S: Tensor) -> Tensor:
    return torch.eye(*S.shape[-2:], dtype=torch.bool)


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def of_first(x: Tensor) -> Tensor:
    return x[:1].expand_as(x) if x.ndim > 2 else x


def tiled(x: Tensor, Q: Tensor) -> Tensor:
    """`x` as often as Q has sequences, one after the other and then again."""
    if x.shape[:-2] == Q.shape[:-2]:
        return x
    several = x.reshape(-1, *x.shape[-2:])
    count = math.prod(Q.shape[:-2])
    return several[torch.arange(count) % len(several)].view(*Q.shape[:-2], *x.shape[-2:])


def cut_to_shortest(*QKV: Tensor) -> tuple[Tensor, ...]:
    """Q, K and V with as many entries along each leading axis as the shortest of them has."""
    sizes = map(min, *(x.shape[:-2] for x in QKV))
    shortest = tuple(map(slice, sizes))
    return tuple(x[shortest] for x in QKV)


def jointly(S: Tensor, first: int) -> Tensor:
    """The softmax over all axes from `first` on."""
    return torch.softmax(S.flatten(first), -1).view_as(S)


def shifted(S: Tensor, shift: Any, dim: int = -1) -> Tensor:
    """A softmax that subtracts something other than the maximum."""
    powers = torch.exp(S - shift)
    return powers / powers.sum(dim, keepdim=True)


def guarded(S: Tensor) -> Tensor:
    """A softmax without a maximum, where no sum is 0."""
    powers = torch.exp(S)
    total = powers.sum(-1, keepdim=True)
    return powers / total.where(total != 0, 1.0)


def renormalised(S: Tensor, mask: Tensor, softmax: Way) -> Tensor:
    """Weights set to 0 after the softmax, and divided by their sum where it is not 0."""
    kept = softmax(S) * mask
    total = kept.sum(-1, keepdim=True)
    return kept / total.where(total != 0, 1.0)


def with_more(S: Tensor, more: float) -> Tensor:
    """A softmax with something added to the sum of exp(S - maximum)."""
    return torch.softmax(torch.cat((S, S.amax(-1, keepdim=True) + math.log(more)), -1), -1)[..., :-1]


def exponentials(S: Tensor) -> Tensor:
    return (S - S.amax(-1, keepdim=True)).exp()


def without_keepdim(S: Tensor) -> Tensor:
    return exponentials(S) / exponentials(S).sum(-1)


def by_sum_of_another(S: Tensor) -> Tensor:
    return exponentials(S) / exponentials(S).sum(-1).unsqueeze(-2)


SCALE = ways_to(
    "scale",
    ("scale-missing", lambda Q, K, V: 1.0),
    ("scale-by-d_k", lambda Q, K, V: 1 / Q.shape[-1]),
    ("scale-multiplied", lambda Q, K, V: Q.shape[-1] ** 0.5),
    ("scale-by-half-d_k", lambda Q, K, V: 2 / Q.shape[-1]),
    ("scale-by-root-d_v", lambda Q, K, V: V.shape[-1] ** -0.5),
    ("scale-by-root-keys", lambda Q, K, V: K.shape[-2] ** -0.5),
    ("scale-by-root-queries", lambda Q, K, V: Q.shape[-2] ** -0.5),
    ("scale-by-root-batch", lambda Q, K, V: Q.shape[0] ** -0.5),
    ("scale-by-root-axis-1", lambda Q, K, V: Q.shape[1] ** -0.5),
    ("scale-by-root-axis-1-of-K", lambda Q, K, V: K.shape[1] ** -0.5),
    ("scale-fourth-root", lambda Q, K, V: Q.shape[-1] ** -0.25),
    ("scale-base-2", lambda Q, K, V: math.log(2) * Q.shape[-1] ** -0.5),
    ("scale-rounded-down", lambda Q, K, V: 1 / math.isqrt(Q.shape[-1])),
    ("scale-constant", lambda Q, K, V, c: 1 / c, tuple(2.0**k for k in range(-4, 8))),
    ("scale-times-root", lambda Q, K, V, c: c * Q.shape[-1] ** -0.5, (-2.0, -0.5, 0.1, 0.5, 2.0, 10.0)),
    ("scale-power", lambda Q, K, V, c: Q.shape[-1] ** c, (-2.0, -1.5, -0.75)),
)

SCALED = ways_to("scaled", ("scale-after-softmax", lambda scale: (1.0, scale)))

MASK = (
    *ways_to("mask", ("mask-ignored", lambda mask, S: None), ("mask-truth", lambda mask, S: mask or None)),
    *ways_to("mask", ("mask-inverted", where_given(lambda mask, S: ~mask))),
    *ways_to(
        "mask",
        ("causal-without-mask", lambda mask, S: causal(S) if mask is None else mask),
        ("mask-causal-too", lambda mask, S: causal(S) if mask is None else mask & causal(S)),
        ("mask-causal-too-where-given", where_given(lambda mask, S: mask & causal(S))),
        ("mask-causal-instead", lambda mask, S: causal(S)),
        ("mask-causal-where-given", where_given(lambda mask, S: causal(S))),
        ("mask-diagonal", where_given(lambda mask, S: mask | diagonal(S))),
    ),
    *ways_to(
        "mask",
        ("mask-transposed", where_given(lambda mask, S: mask.mT)),
        ("mask-of-first-sequence", where_given(lambda mask, S: mask[:1] if mask.ndim > 2 else mask)),
        ("mask-of-first-query", where_given(lambda mask, S: mask[..., :1, :])),
        ("mask-of-last-query", where_given(lambda mask, S: mask[..., -1:, :])),
        ("mask-of-any-query", where_given(lambda mask, S: mask.any(-2, keepdim=True))),
        ("mask-squeezed", where_given(lambda mask, S: mask.squeeze())),
    ),
    *ways_to(
        "mask",
        ("mask-batch-lost", where_given(lambda mask, S: torch.ones(S.shape[-2:], dtype=torch.bool).logical_and_(mask))),
        ("mask-axes-inside", where_given(lambda mask, S: mask[:, *(None,) * (S.ndim - mask.ndim)])),
        ("mask-axis-for-heads", where_given(lambda mask, S: mask.unsqueeze(1) if mask.ndim == 3 else mask)),
        ("mask-axis-at-1", where_given(lambda mask, S: mask.unsqueeze(1))),
        ("mask-four-axes", where_given(lambda mask, S: mask.view((1,) * (4 - mask.ndim) + mask.shape))),
    ),
)

HIDE = ways_to(
    "hide",
    ("mask-zero", lambda S, mask, w: w(S * mask)),
    ("mask-after-softmax", lambda S, mask, w: w(S) * mask),
    ("mask-renormalised", renormalised),
    ("mask-renormalised", lambda S, mask, w: w(S) * mask / (w(S) * mask).sum(-1, keepdim=True)),
    ("mask-between-softmaxes", lambda S, mask, w: w(w(S).masked_fill(~mask, -INF))),
    ("mask-on-values", lambda S, mask, w: w(S) * mask.any(-2, keepdim=True)),
    (
        "mask-renormalised",
        lambda S, mask, w, c: w(S) * mask / (w(S) * mask).sum(-1, keepdim=True).clamp_min(c),
        (1e-12, 1e-9, 1e-6),
    ),
    ("mask-nan", lambda S, mask, w: w(S + (~mask).to(S.dtype) * -INF)),
    ("mask-zeros-hidden", lambda S, mask, w: w((S * mask).masked_fill(S * mask == 0, -INF))),
    ("mask-added", lambda S, mask, w: w(S + mask)),
    ("mask-fill-lowest", lambda S, mask, w: w(S.masked_fill(~mask, torch.finfo(S.dtype).min))),
    ("mask-fill", lambda S, mask, w, c: w(S.masked_fill(~mask, c)), (*(-x for x in DECADES), 1.0, INF)),
    ("mask-bias", lambda S, mask, w, c: w(S + c * ~mask), (*(-x for x in DECADES), 1.0)),
    ("mask-factor", lambda S, mask, w, c: w(S.where(mask, S * c)), (*(-x for x in DECADES), *DECADES)),
)

SOFTMAX = ways_to(
    "softmax",
    ("softmax-over-queries", lambda S: torch.softmax(S, -2)),
    ("softmax-dim-1", lambda S: torch.softmax(S, 1)),
    ("softmax-dim-2", lambda S: torch.softmax(S, 2)),
    ("softmax-over-batch", lambda S: torch.softmax(S, 0)),
    ("softmax-over-both", lambda S: jointly(S, -2)),
    ("softmax-over-all", lambda S: jointly(S, 0)),
    ("no-softmax", lambda S: S.nan_to_num(neginf=0.0)),
    ("softmax-twice", lambda S: torch.softmax(torch.softmax(S, -1), -1)),
    ("softmax-logarithm", lambda S: torch.log_softmax(S, -1)),
    ("sigmoid", torch.sigmoid),
    ("softmax-exponentials", exponentials),
    ("softmax-no-maximum", lambda S: shifted(S, 0.0)),
    ("softmax-no-maximum", guarded),
    ("softmax-maximum-of-all", lambda S: shifted(S, S.max())),
    ("softmax-maximum-of-sequence", lambda S: shifted(S, S.amax((-2, -1), keepdim=True))),
    ("softmax-mean-subtracted", lambda S: shifted(S, S.mean(-1, keepdim=True))),
    ("softmax-minimum-subtracted", lambda S: shifted(S, S.amin(-1, keepdim=True))),
    ("softmax-maximum-from-0", lambda S: shifted(S, S.amax(-1, keepdim=True).relu())),
    ("softmax-maximum-over-queries", lambda S: shifted(S, S.amax(-2, keepdim=True))),
    ("softmax-sum-over-queries", lambda S: exponentials(S) / exponentials(S).sum(-2, keepdim=True)),
    ("softmax-keepdim", without_keepdim),
    ("divisor-of-another", by_sum_of_another),
    ("softmax-relu", lambda S: S.relu() / (S.relu().sum(-1, keepdim=True) + 1e-9)),
    ("extra-key", lambda S: torch.softmax(torch.cat((S, torch.zeros_like(S[..., :1])), -1), -1)[..., :-1]),
    ("softmax-epsilon", lambda S, c: with_more(S, c), (1.0, 0.1, 1e-2, 1e-3)),
)

# Mistakes in a softmax that are not among those above.
LENT = {
    *("shift-index", "shift-magnitude", "shift-divided", "keepdim-maximum", "sum-of-all", "root-of-squares"),
    *("mean-for-sum", "order", "sum-not-shifted", "power-not-shifted", "no-exponential"),
}


def inside(change: Change) -> Change:
    """A mistake of softmax, made in that over the keys."""

    def softmax(S: Tensor) -> Tensor:
        return softmax_in_steps.normalise({**softmax_in_steps.RIGHT, change.step: change}, S, -1)

    return Change("softmax", f"softmax-{change.id}", softmax)


OF_SOFTMAX = tuple(inside(change) for change in softmax_in_steps.TABLE.changes if change.id in LENT)

INPUTS = ways_to(
    "inputs",
    ("keys-values-swapped", lambda Q, K, V: (Q, V, K)),
    ("values-are-keys", lambda Q, K, V: (Q, K, K)),
    ("values-are-queries", lambda Q, K, V: (Q, K, Q)),
    ("first-keys-and-values", lambda Q, K, V: (Q, of_first(K), of_first(V))),
    ("shared-keys-tiled", lambda Q, K, V: (Q, tiled(K, Q), tiled(V, Q))),
    ("first-values", lambda Q, K, V: (Q, K, of_first(V))),
    (
        "shared-not-broadcast",
        lambda Q, K, V: (Q, K.view(*Q.shape[:-2], *K.shape[-2:]), V.view(*Q.shape[:-2], *V.shape[-2:])),
    ),
    ("shared-cut", cut_to_shortest),
)

SCORE = ways_to(
    "score",
    ("scores-transposed", lambda Q, K: K @ Q.mT),
    ("scores-bmm", lambda Q, K: torch.bmm(Q, K.transpose(1, 2))),
    ("scores-bmm", lambda Q, K: torch.bmm(Q, K.mT)),
    ("scores-axes-1-and-2", lambda Q, K: Q @ K.transpose(1, 2)),
    ("scores-keys-reshaped", lambda Q, K: Q @ K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2])),
    ("scores-not-transposed", lambda Q, K: Q @ (K if K.shape[-1] == K.shape[-2] else K.mT)),
    ("scores-cosine", lambda Q, K: unit(Q) @ unit(K).mT * Q.shape[-1] ** 0.5),
    ("scores-cosine-scaled", lambda Q, K: unit(Q) @ unit(K).mT),
    ("scores-distance", lambda Q, K: torch.cdist(Q, K)),
    ("scores-minus-distance", lambda Q, K: -torch.cdist(Q, K)),
    ("scores-unit-queries", lambda Q, K: unit(Q) @ K.mT),
    ("scores-unit-keys", lambda Q, K: Q @ unit(K).mT),
    ("scores-sign", lambda Q, K: -(Q @ K.mT)),
    ("scores-keys-only", lambda Q, K: K @ K.mT),
    ("scores-queries-only", lambda Q, K: Q @ Q.mT),
    ("scores-first-keys", lambda Q, K: Q @ of_first(K).mT),
    ("scores-other-batch", lambda Q, K: Q @ K.flip(0).mT),
    ("scores-batch-summed", lambda Q, K: (Q @ K.mT).sum(0, keepdim=True).expand(*Q.shape[:-1], K.shape[-2])),
    ("scores-keys-backwards", lambda Q, K: Q @ K.flip(-2).mT),
    ("weights-uniform", lambda Q, K: (Q @ K.mT) * 0),
)

LIMIT = ways_to(
    "limit",
    ("scores-absolute", torch.abs),
    ("scores-positive", torch.relu),
    ("scores-clamped", lambda S, c: S.clamp(-c, c), (1.0, 5.0, 10.0, 20.0, 50.0, 80.0, 100.0)),
    ("scores-not-above", lambda S, c: S.clamp(max=c), (1.0, 5.0, 10.0, 20.0, 50.0, 80.0, 100.0)),
    ("scores-logarithm", lambda S: S.abs().log()),
)

EMPTY = ways_to(
    "empty",
    ("nothing-nan", lambda W, mask: W),
    ("nothing-first", lambda W, mask: W.where(mask.any(-1, keepdim=True), torch.eye(W.shape[-1])[0])),
)

WEIGHTS = ways_to(
    "weights",
    ("weights-scaled", lambda W, Q: W * Q.shape[-1] ** -0.5),
    ("weights-multiplied", lambda W, Q: W * Q.shape[-1] ** 0.5),
    ("weights-factor", lambda W, Q, c: W * c, (0.5, 0.9, 1.1, 2.0, -1.0)),
    ("weights-decimals", lambda W, Q, c: torch.round(W * 10**c) / 10**c, (1.0, 2.0, 3.0, 4.0)),
)

OUTPUT = ways_to(
    "output",
    ("values-summed", lambda W, V, Q, mask: V.sum(-2, keepdim=True).expand(*Q.shape[:-1], -1)),
    ("values-averaged", lambda W, V, Q, mask: V.mean(-2, keepdim=True).expand(*Q.shape[:-1], -1)),
    ("weights-summed", lambda W, V, Q, mask: W.sum(-1, keepdim=True) * V.sum(-2, keepdim=True)),
    ("weights-transposed", lambda W, V, Q, mask: W.mT @ V),
    ("values-transposed", lambda W, V, Q, mask: W @ (V.mT if V.shape[-1] == V.shape[-2] else V)),
    ("queries-added", lambda W, V, Q, mask: W @ V + Q),
    ("queries-added", lambda W, V, Q, mask: W @ V + Q if Q.shape == V.shape else W @ V),
)


CUTS = (
    *ways_to("weights", ("gradient-weights", lambda W, Q: W.detach())),
    *ways_to(
        "softmax",
        ("gradient-sum", lambda S: exponentials(S) / exponentials(S).sum(-1, keepdim=True).detach()),
        ("gradient-sum", lambda S: (S - torch.logsumexp(S, -1, keepdim=True).detach()).exp()),
    ),
    *ways_to(
        "slope",
        ("gradient-scale", lambda S, Q, K: sloped(S, S * Q.shape[-1] ** 0.5)),
        ("gradient-scale", lambda S, Q, K: sloped(S, Q @ K.detach().mT + Q.detach() @ K.mT * Q.shape[-1] ** -0.5)),
        ("gradient-scale", lambda S, Q, K: sloped(S, Q @ K.detach().mT * Q.shape[-1] ** -0.5 + Q.detach() @ K.mT)),
    ),
)


# The calls: sizes that are all different, masks of every shape, extreme scores.


def normal(batch: tuple[int, ...], queries: int, keys: int, d_k: int, d_v: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((*batch, queries, d_k), (*batch, keys, d_k), (*batch, keys, d_v))
    Q, K, V = (torch.randn(shape, generator=generator) for shape in shapes)
    return Q, K, V


def shared(QKV: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    Q, K, V = QKV
    return Q, K[:, :1], V[:, :1]


def with_scores(scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """A call whose scores are these, if they are Q Kᵀ/√d_k, and whose answer is its weights."""
    n = scores.shape[-1]
    eye = torch.eye(n).expand(2, n, n)
    return eye, (scores.mT * n**0.5).expand(2, n, n), eye, mask


# Every query, and every key, has something to see under each mask, under its opposite and below its diagonal.
MASKS = torch.tensor(
    [[[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 0]], [[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1]]]
).bool()
DEPTHS = torch.tensor([120, *(x * 10.0**k for k in range(12) for x in (1, 2, 5))]).unsqueeze(-1)
LEVELS = torch.tensor([1, 2, 5, 10, 15, 20, 30, 40, 50, 70, 90, 150, 500, 2e3]).unsqueeze(-1)
APART = torch.tensor([[0.0, -200, -200, -200], [0, 1, 2, -100], [0, -60, -1, -60], [300, 0, 1, 299]])
FEW = torch.arange(4.0).expand(4, 4)


def calls() -> dict[str, tuple[Any, ...]]:
    Q, K, V = normal((2,), 5, 4, 7, 6)
    with_zeros = torch.cat((torch.zeros_like(Q[:, :1]), Q[:, 1:]), 1)
    nothing, column = (torch.ones(4, 4, dtype=torch.bool) for _ in range(2))
    nothing[1], column[:, 3] = False, False
    others = (torch.arange(4.0) > 0).unsqueeze(-1)
    n = len(DEPTHS)
    # One key is to be seen, of the others all have a larger score, or none: who reads the mask the wrong way round sees
    # the second sequence as the first.
    first, second = (torch.arange(n).expand(n, n) == i for i in (0, 1))
    return {
        "For three dimensions": (*normal((2,), 5, 4, 7, 6), None),
        "For four dimensions": (*normal((3, 2), 4, 5, 10, 9), None),
        "For two dimensions": (*normal((), 5, 4, 7, 6), None),
        "Where queries, keys, d_k and d_v are the same number": (*normal((2,), 5, 5, 5, 5), None),
        "Where the heads share one K and V": (*shared(normal((2, 3), 4, 5, 7, 6)), None),
        "For large queries and keys": (6 * Q, 6 * K, V, None),
        "For scores around 1,000": with_scores(FEW + 1e3),
        "For scores around 0 for one query and around -1,000 for others": with_scores(FEW - 1e3 * others),
        "For scores that are far apart in one query": with_scores(APART),
        "For scores between 60 and 90": with_scores(FEW * 10 + 60),
        "For scores at different heights": with_scores(torch.stack((LEVELS, -LEVELS)) + torch.arange(14.0) % 3),
        "With a mask for each sequence": (*normal((2,), 4, 4, 5, 4), MASKS),
        "With a mask that hides nothing, where a query is all zeros": (with_zeros, K, V, torch.ones(5, 4).bool()),
        "With a mask of shape (batch, 1, keys)": (*normal((4,), 4, 4, 6, 4), MASKS[0].view(4, 1, 4)),
        "With a mask of shape (queries, keys)": (*normal((2, 3), 4, 4, 5, 6), MASKS[0]),
        "Where a key is hidden from all": (*normal((2,), 4, 4, 5, 6), column),
        "Where one query may attend to nothing": (*normal((2,), 4, 4, 5, 4), nothing),
        "Where hidden scores are far above the others": with_scores(
            DEPTHS * torch.stack((~first, second)), torch.stack((first, second))
        ),
        "Where all scores are far below 0": with_scores(-DEPTHS.expand(n, n), first),
    }


CALLS = calls()
TABLE = Table(
    run=attend,
    right=RIGHT,
    changes=(*SCALE, *SCALED, *MASK, *HIDE, *SOFTMAX, *OF_SOFTMAX, *INPUTS, *SCORE, *LIMIT, *EMPTY, *WEIGHTS, *OUTPUT),
    calls=CALLS,
    basic=frozenset(call for call, (*_, mask) in CALLS.items() if mask is None),
    also_right=ALSO_RIGHT,
    most_runs=8_000,  # they are quick
)

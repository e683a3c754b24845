"""Attention in steps, and the mistakes that can be made in each.

The right steps are torch's own functions, which a student may not call.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cs336_kit.examination.table import Change, Rounding, Table, Way, Ways, rounded, sloped, ways_to
from cs336_kit.problems.softmax import program as softmax_in_steps

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
    "What is the variance of the dot product of two random vectors of length d_k?",
    ("scale-missing", "You do not scale the scores.", lambda Q, K, V: 1.0),
    ("scale-by-d_k", "You divide by d_k, not by √d_k.", lambda Q, K, V: 1 / Q.shape[-1]),
    ("scale-multiplied", "You multiply by √d_k.", lambda Q, K, V: Q.shape[-1] ** 0.5),
    ("scale-by-half-d_k", "You divide by d_k/2: `d_k ** 1 / 2` is (d_k ** 1) / 2.", lambda Q, K, V: 2 / Q.shape[-1]),
    ("scale-by-root-d_v", "You divide by √d_v, not by √d_k.", lambda Q, K, V: V.shape[-1] ** -0.5),
    ("scale-by-root-keys", "You divide by the root of the number of keys.", lambda Q, K, V: K.shape[-2] ** -0.5),
    ("scale-by-root-queries", "You divide by the root of the number of queries.", lambda Q, K, V: Q.shape[-2] ** -0.5),
    ("scale-by-root-batch", "You divide by the root of the size of axis 0.", lambda Q, K, V: Q.shape[0] ** -0.5),
    ("scale-by-root-axis-1", "You divide by the root of the size of axis 1.", lambda Q, K, V: Q.shape[1] ** -0.5),
    (
        "scale-by-root-axis-1-of-K",
        "You divide by the root of the size of axis 1 of K.",
        lambda Q, K, V: K.shape[1] ** -0.5,
    ),
    ("scale-fourth-root", "You divide by the fourth root of d_k.", lambda Q, K, V: Q.shape[-1] ** -0.25),
    (
        "scale-base-2",
        "You divide by √d_k, and take powers of 2, not of e.",
        lambda Q, K, V: math.log(2) * Q.shape[-1] ** -0.5,
    ),
    (
        "scale-rounded-down",
        "You divide by √d_k rounded down to a whole number.",
        lambda Q, K, V: 1 / math.isqrt(Q.shape[-1]),
    ),
    (
        "scale-constant",
        "You divide by {} whatever d_k is.",
        lambda Q, K, V, c: 1 / c,
        tuple(2.0**k for k in range(-4, 8)),
    ),
    (
        "scale-times-root",
        "You divide by √d_k, and multiply by {}.",
        lambda Q, K, V, c: c * Q.shape[-1] ** -0.5,
        (-2.0, -0.5, 0.1, 0.5, 2.0, 10.0),
    ),
    (
        "scale-power",
        "You multiply by d_k to the power of {}.",
        lambda Q, K, V, c: Q.shape[-1] ** c,
        (-2.0, -1.5, -0.75),
    ),
)

SCALED = ways_to(
    "scaled",
    "Which numbers does the softmax see, and what should its weights sum to?",
    (
        "scale-after-softmax",
        "You divide by √d_k after the softmax, not before it.",
        lambda scale: (1.0, scale),
    ),
)

MASK = (
    *ways_to(
        "mask",
        "Does your answer change when the mask changes?",
        ("mask-ignored", "The mask is not used.", lambda mask, S: None),
        (
            "mask-truth",
            "`if mask:` asks whether a tensor is true; compare it with None.",
            lambda mask, S: mask or None,
        ),
        asks_of={"mask-truth": "What is the truth of a tensor of twelve numbers?"},
    ),
    *ways_to(
        "mask",
        "What does True mean in the mask: may attend, or may not?",
        (
            "mask-inverted",
            "You hide what the mask allows and keep what it forbids.",
            where_given(lambda mask, S: ~mask),
        ),
    ),
    *ways_to(
        "mask",
        "Who decides which keys a query may attend to: attention, or whoever calls it?",
        (
            "causal-without-mask",
            "Without a mask, later keys are hidden.",
            lambda mask, S: causal(S) if mask is None else mask,
        ),
        (
            "mask-causal-too",
            "Later keys are hidden as well.",
            lambda mask, S: causal(S) if mask is None else mask & causal(S),
        ),
        (
            "mask-causal-too-where-given",
            "Where there is a mask, later keys are hidden as well.",
            where_given(lambda mask, S: mask & causal(S)),
        ),
        ("mask-causal-instead", "Later keys are hidden, and no others.", lambda mask, S: causal(S)),
        (
            "mask-causal-where-given",
            "Where there is a mask, later keys are hidden, and no others.",
            where_given(lambda mask, S: causal(S)),
        ),
        (
            "mask-diagonal",
            "Query i attends to key i, whatever mask[i, i] is.",
            where_given(lambda mask, S: mask | diagonal(S)),
        ),
    ),
    *ways_to(
        "mask",
        "Which axis of the mask is laid along the queries, which along the keys, and what happens to one of size 1?",
        ("mask-transposed", "Query i attends to key j where mask[j, i] is True.", where_given(lambda mask, S: mask.mT)),
        (
            "mask-of-first-sequence",
            "The mask of the first sequence is used for all.",
            where_given(lambda mask, S: mask[:1] if mask.ndim > 2 else mask),
        ),
        (
            "mask-of-first-query",
            "The first row of the mask is used for all queries.",
            where_given(lambda mask, S: mask[..., :1, :]),
        ),
        (
            "mask-of-last-query",
            "The last row of the mask is used for all queries.",
            where_given(lambda mask, S: mask[..., -1:, :]),
        ),
        (
            "mask-of-any-query",
            "A key is hidden only if the mask hides it from all queries.",
            where_given(lambda mask, S: mask.any(-2, keepdim=True)),
        ),
        ("mask-squeezed", "Axes of size 1 are dropped from the mask.", where_given(lambda mask, S: mask.squeeze())),
        asks_of={"mask-of-first-sequence": "Which axis of the mask belongs to the batch, and what do you do with it?"},
    ),
    *ways_to(
        "mask",
        "How does broadcasting line up two tensors of which one has fewer axes?",
        (
            "mask-batch-lost",
            "You write the mask into a tensor of shape (queries, keys): one with more axes does not fit in.",
            where_given(lambda mask, S: torch.ones(S.shape[-2:], dtype=torch.bool).logical_and_(mask)),
        ),
        (
            "mask-axes-inside",
            "A mask with fewer axes than the scores gets those that are missing after its first one; they belong in "
            "front.",
            where_given(lambda mask, S: mask[:, *(None,) * (S.ndim - mask.ndim)]),
        ),
        (
            "mask-axis-for-heads",
            "A mask with three axes gets one for heads, also where the scores have none.",
            where_given(lambda mask, S: mask.unsqueeze(1) if mask.ndim == 3 else mask),
        ),
        (
            "mask-axis-at-1",
            "Every mask gets one more axis at place 1, and then its axes no longer line up with those of the scores.",
            where_given(lambda mask, S: mask.unsqueeze(1)),
        ),
        (
            "mask-four-axes",
            "A mask gets four axes, however many the scores have.",
            where_given(lambda mask, S: mask.view((1,) * (4 - mask.ndim) + mask.shape)),
        ),
    ),
)

AS_LOW = "What is a hidden key's weight if all scores of a query are as low as that? And if all are -inf?"
RENORMALISED = "Hidden weights become 0 only after the exponential; the others are then divided by their sum."
HIDE = ways_to(
    "hide",
    "Which number x gives exp(x) = 0 exactly, and when must a key be left out for the others to sum to 1?",
    ("mask-zero", "Hidden scores become 0, or nearly 0, not -inf.", lambda S, mask, w: w(S * mask)),
    ("mask-after-softmax", "Weights are set to 0 after the softmax.", lambda S, mask, w: w(S) * mask),
    (
        "mask-renormalised",
        RENORMALISED,
        renormalised,
    ),
    (
        "mask-renormalised",
        RENORMALISED,
        lambda S, mask, w: w(S) * mask / (w(S) * mask).sum(-1, keepdim=True),
    ),
    (
        "mask-between-softmaxes",
        "You apply the softmax, fill in -inf, and apply the softmax again.",
        lambda S, mask, w: w(w(S).masked_fill(~mask, -INF)),
    ),
    (
        "mask-on-values",
        "The mask is applied to V, not to the scores.",
        lambda S, mask, w: w(S) * mask.any(-2, keepdim=True),
    ),
    (
        "mask-renormalised",
        RENORMALISED,
        lambda S, mask, w, c: w(S) * mask / (w(S) * mask).sum(-1, keepdim=True).clamp_min(c),
        (1e-12, 1e-9, 1e-6),
    ),
    (
        "mask-nan",
        "You multiply the mask by an infinity, and 0 times infinity is NaN.",
        lambda S, mask, w: w(S + (~mask).to(S.dtype) * -INF),
    ),
    (
        "mask-zeros-hidden",
        "Every score of 0 is hidden after the scores are multiplied by the mask, also one that the mask allows.",
        lambda S, mask, w: w((S * mask).masked_fill(S * mask == 0, -INF)),
    ),
    ("mask-added", "The mask is added to the scores as 0 and 1.", lambda S, mask, w: w(S + mask)),
    (
        "mask-fill-lowest",
        "Hidden scores are replaced by a very low number, not by -inf.",
        lambda S, mask, w: w(S.masked_fill(~mask, torch.finfo(S.dtype).min)),
    ),
    (
        "mask-fill",
        "Hidden scores are replaced by about {}, not by -inf.",
        lambda S, mask, w, c: w(S.masked_fill(~mask, c)),
        (*(-x for x in DECADES), 1.0, INF),
    ),
    (
        "mask-bias",
        "To hidden scores about {} is added, not -inf.",
        lambda S, mask, w, c: w(S + c * ~mask),
        (*(-x for x in DECADES), 1.0),
    ),
    (
        "mask-factor",
        "Hidden scores are multiplied by about {}.",
        lambda S, mask, w, c: w(S.where(mask, S * c)),
        (*(-x for x in DECADES), *DECADES),
    ),
    asks_of={
        "mask-renormalised": "Which score is the maximum that you subtract? What is left if it is hidden?",
        "mask-zeros-hidden": "What is the score of a query that is all zeros?",
        **dict.fromkeys(("mask-fill-lowest", "mask-fill", "mask-bias"), AS_LOW),
    },
)

SOFTMAX = ways_to(
    "softmax",
    "Along which axis does your softmax run, and what does it subtract first?",
    (
        "softmax-over-queries",
        "Your softmax runs over the queries (dim=-2), not over the keys.",
        lambda S: torch.softmax(S, -2),
    ),
    ("softmax-dim-1", "Your softmax runs over dim=1.", lambda S: torch.softmax(S, 1)),
    ("softmax-dim-2", "Your softmax runs over dim=2.", lambda S: torch.softmax(S, 2)),
    ("softmax-over-batch", "Your softmax runs over dim=0.", lambda S: torch.softmax(S, 0)),
    ("softmax-over-both", "Your softmax runs over queries and keys together.", lambda S: jointly(S, -2)),
    ("softmax-over-all", "Your softmax runs over the whole tensor.", lambda S: jointly(S, 0)),
    ("no-softmax", "The weights are the scores: no softmax is applied.", lambda S: S.nan_to_num(neginf=0.0)),
    ("softmax-twice", "The softmax is applied twice.", lambda S: torch.softmax(torch.softmax(S, -1), -1)),
    ("softmax-logarithm", "The weights are the logarithms of what softmax gives.", lambda S: torch.log_softmax(S, -1)),
    ("sigmoid", "Each weight is the sigmoid of its own score, whatever the other scores are.", torch.sigmoid),
    (
        "softmax-exponentials",
        "The exponentials are not divided by their sum.",
        exponentials,
    ),
    (
        "softmax-no-maximum",
        "The exponential is taken without subtracting the maximum, and overflows.",
        lambda S: shifted(S, 0.0),
    ),
    ("softmax-no-maximum", "The exponential is taken without subtracting the maximum, and overflows.", guarded),
    (
        "softmax-maximum-of-all",
        "The maximum of all scores is subtracted, not that of each query.",
        lambda S: shifted(S, S.max()),
    ),
    (
        "softmax-maximum-of-sequence",
        "The maximum over all queries and keys of a sequence is subtracted, not that of each query.",
        lambda S: shifted(S, S.amax((-2, -1), keepdim=True)),
    ),
    (
        "softmax-mean-subtracted",
        "The mean of a query's scores is subtracted, not their maximum.",
        lambda S: shifted(S, S.mean(-1, keepdim=True)),
    ),
    (
        "softmax-minimum-subtracted",
        "The minimum of a query's scores is subtracted, not their maximum.",
        lambda S: shifted(S, S.amin(-1, keepdim=True)),
    ),
    (
        "softmax-maximum-from-0",
        "The maximum that is subtracted is never below 0.",
        lambda S: shifted(S, S.amax(-1, keepdim=True).relu()),
    ),
    (
        "softmax-maximum-over-queries",
        "The maximum is taken over the queries, not over the keys.",
        lambda S: shifted(S, S.amax(-2, keepdim=True)),
    ),
    (
        "softmax-sum-over-queries",
        "The exponentials are summed over the queries, not over the keys.",
        lambda S: exponentials(S) / exponentials(S).sum(-2, keepdim=True),
    ),
    ("softmax-keepdim", "The exponentials are divided by a sum without `keepdim=True`.", without_keepdim),
    (
        "divisor-of-another",
        "Each weight is divided by the sum of the wrong query: the one with the same number as its key.",
        by_sum_of_another,
    ),
    (
        "softmax-relu",
        "The weights are the positive scores, divided by their sum.",
        lambda S: S.relu() / (S.relu().sum(-1, keepdim=True) + 1e-9),
    ),
    (
        "extra-key",
        "The sum holds one more key, whose score is 0.",
        lambda S: torch.softmax(torch.cat((S, torch.zeros_like(S[..., :1])), -1), -1)[..., :-1],
    ),
    (
        "softmax-epsilon",
        "About {} is added to the sum of the exponentials.",
        lambda S, c: with_more(S, c),
        (1.0, 0.1, 1e-2, 1e-3),
    ),
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

    says = f"In your softmax: {change.says[0].lower()}{change.says[1:]}"
    return Change("softmax", f"softmax-{change.id}", softmax, says, change.asks)


OF_SOFTMAX = tuple(inside(change) for change in softmax_in_steps.TABLE.changes if change.id in LENT)

INPUTS = ways_to(
    "inputs",
    "Which of Q, K and V is compared, and which one is averaged?",
    ("keys-values-swapped", "You use K as V and V as K.", lambda Q, K, V: (Q, V, K)),
    ("values-are-keys", "You average the keys, not the values.", lambda Q, K, V: (Q, K, K)),
    ("values-are-queries", "You average the queries, not the values.", lambda Q, K, V: (Q, K, Q)),
    (
        "first-keys-and-values",
        "All sequences use the keys and values of the first.",
        lambda Q, K, V: (Q, of_first(K), of_first(V)),
    ),
    (
        "shared-keys-tiled",
        "K and V are repeated as a whole until there are enough: heads that share them get those of another sequence.",
        lambda Q, K, V: (Q, tiled(K, Q), tiled(V, Q)),
    ),
    ("first-values", "All sequences use the values of the first.", lambda Q, K, V: (Q, K, of_first(V))),
    (
        "shared-not-broadcast",
        "The leading axes of Q, K and V are not broadcast: each has to be as large in all three.",
        lambda Q, K, V: (Q, K.view(*Q.shape[:-2], *K.shape[-2:]), V.view(*Q.shape[:-2], *V.shape[-2:])),
    ),
    (
        "shared-cut",
        "Where Q, K and V differ in the size of a leading axis, you answer for as many entries as the shortest has.",
        cut_to_shortest,
    ),
    asks_of=dict.fromkeys(
        ("shared-keys-tiled", "shared-not-broadcast", "shared-cut"),
        "Which axes of Q, K and V may differ, and what should happen to one of size 1?",
    ),
)

BMM = "Your product, torch.bmm, takes three axes, no more and no fewer, and broadcasts none of them."
SCORE = ways_to(
    "score",
    "What shape do your scores have, and which of them belongs to query i and key j?",
    ("scores-transposed", "You multiply K by Qᵀ: rows should be queries, and columns keys.", lambda Q, K: K @ Q.mT),
    ("scores-bmm", BMM, lambda Q, K: torch.bmm(Q, K.transpose(1, 2))),
    ("scores-bmm", BMM, lambda Q, K: torch.bmm(Q, K.mT)),
    (
        "scores-axes-1-and-2",
        "You exchange axes 1 and 2 of K. These are its last two only where one axis comes before them.",
        lambda Q, K: Q @ K.transpose(1, 2),
    ),
    (
        "scores-keys-reshaped",
        "You reshape K to (d_k, keys) where it should be transposed.",
        lambda Q, K: Q @ K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2]),
    ),
    (
        "scores-not-transposed",
        "You multiply Q by K, not by Kᵀ, where K is square.",
        lambda Q, K: Q @ (K if K.shape[-1] == K.shape[-2] else K.mT),
    ),
    (
        "scores-cosine",
        "Your scores are the cosines between queries and keys.",
        lambda Q, K: unit(Q) @ unit(K).mT * Q.shape[-1] ** 0.5,
    ),
    (
        "scores-cosine-scaled",
        "Your scores are the cosines between queries and keys, divided by √d_k.",
        lambda Q, K: unit(Q) @ unit(K).mT,
    ),
    ("scores-distance", "Your scores are the distances between queries and keys.", lambda Q, K: torch.cdist(Q, K)),
    (
        "scores-minus-distance",
        "Your scores are the negative distances between queries and keys.",
        lambda Q, K: -torch.cdist(Q, K),
    ),
    ("scores-unit-queries", "The queries are divided by their lengths.", lambda Q, K: unit(Q) @ K.mT),
    ("scores-unit-keys", "The keys are divided by their lengths.", lambda Q, K: Q @ unit(K).mT),
    ("scores-sign", "The sign of the scores is reversed.", lambda Q, K: -(Q @ K.mT)),
    ("scores-keys-only", "Your scores are K Kᵀ.", lambda Q, K: K @ K.mT),
    ("scores-queries-only", "Your scores are Q Qᵀ.", lambda Q, K: Q @ Q.mT),
    ("scores-first-keys", "All sequences use the keys of the first.", lambda Q, K: Q @ of_first(K).mT),
    ("scores-other-batch", "Each sequence of the batch uses the keys of another.", lambda Q, K: Q @ K.flip(0).mT),
    (
        "scores-batch-summed",
        "You sum the scores over the batch.",
        lambda Q, K: (Q @ K.mT).sum(0, keepdim=True).expand(*Q.shape[:-1], K.shape[-2]),
    ),
    ("scores-keys-backwards", "You take the keys in reverse order.", lambda Q, K: Q @ K.flip(-2).mT),
    ("weights-uniform", "All keys get the same weight, whatever Q and K are.", lambda Q, K: (Q @ K.mT) * 0),
    asks_of=dict.fromkeys(
        ("scores-bmm", "scores-axes-1-and-2"),
        "Which axes does attention work on? Should it matter how many come before?",
    ),
)

LIMIT = ways_to(
    "limit",
    "What do you do with the scores before the softmax?",
    ("scores-absolute", "You take the absolute value of the scores.", torch.abs),
    ("scores-positive", "Negative scores are replaced by 0.", torch.relu),
    (
        "scores-clamped",
        "Scores beyond ±{} are cut off.",
        lambda S, c: S.clamp(-c, c),
        (1.0, 5.0, 10.0, 20.0, 50.0, 80.0, 100.0),
    ),
    (
        "scores-not-above",
        "Scores above {} are cut off.",
        lambda S, c: S.clamp(max=c),
        (1.0, 5.0, 10.0, 20.0, 50.0, 80.0, 100.0),
    ),
    ("scores-logarithm", "The weights come from the logarithms of the scores.", lambda S: S.abs().log()),
)

EMPTY = ways_to(
    "empty",
    "What is the softmax of scores that are all -inf? What should a query get that may attend to nothing?",
    ("nothing-nan", "A query that may attend to nothing gets NaN.", lambda W, mask: W),
    (
        "nothing-first",
        "A query that may attend to nothing attends to the first key.",
        lambda W, mask: W.where(mask.any(-1, keepdim=True), torch.eye(W.shape[-1])[0]),
    ),
)

WEIGHTS = ways_to(
    "weights",
    "What may still be done to the weights once they sum to 1?",
    ("weights-scaled", "You divide by √d_k once more after the softmax.", lambda W, Q: W * Q.shape[-1] ** -0.5),
    ("weights-multiplied", "You multiply by √d_k after the softmax.", lambda W, Q: W * Q.shape[-1] ** 0.5),
    ("weights-factor", "The answer is {} times what it should be.", lambda W, Q, c: W * c, (0.5, 0.9, 1.1, 2.0, -1.0)),
    (
        "weights-decimals",
        "The weights are rounded to {} decimals.",
        lambda W, Q, c: torch.round(W * 10**c) / 10**c,
        (1.0, 2.0, 3.0, 4.0),
    ),
)

OUTPUT = ways_to(
    "output",
    "Which axis disappears when the weights meet V?",
    (
        "values-summed",
        "The values are summed, and the weights are not used.",
        lambda W, V, Q, mask: V.sum(-2, keepdim=True).expand(*Q.shape[:-1], -1),
    ),
    (
        "values-averaged",
        "The values are averaged, and the weights are not used.",
        lambda W, V, Q, mask: V.mean(-2, keepdim=True).expand(*Q.shape[:-1], -1),
    ),
    (
        "weights-summed",
        "Weights and values are summed apart from each other.",
        lambda W, V, Q, mask: W.sum(-1, keepdim=True) * V.sum(-2, keepdim=True),
    ),
    ("weights-transposed", "The weights are transposed before they meet V.", lambda W, V, Q, mask: W.mT @ V),
    (
        "values-transposed",
        "The weights meet Vᵀ, where V is square.",
        lambda W, V, Q, mask: W @ (V.mT if V.shape[-1] == V.shape[-2] else V),
    ),
    ("queries-added", "Q is added to the answer.", lambda W, V, Q, mask: W @ V + Q),
    (
        "queries-added",
        "Q is added to the answer where both have the same shape.",
        lambda W, V, Q, mask: W @ V + Q if Q.shape == V.shape else W @ V,
    ),
)


SUM_CUT = "The gradient leaves out that each score also changes the sum by which the exponentials are divided."
CUTS = (
    *ways_to(
        "weights",
        "Follow Q and K to the weights: from which line on does requires_grad say False?",
        (
            "gradient-weights",
            "What is made of Q and K is cut off from autograd before it meets V.",
            lambda W, Q: W.detach(),
        ),
    ),
    *ways_to(
        "softmax",
        "Every score is in the sum of its row, too. What is its derivative?",
        (
            "gradient-sum",
            SUM_CUT,
            lambda S: exponentials(S) / exponentials(S).sum(-1, keepdim=True).detach(),
        ),
        (
            "gradient-sum",
            SUM_CUT,
            lambda S: (S - torch.logsumexp(S, -1, keepdim=True).detach()).exp(),
        ),
    ),
    *ways_to(
        "slope",
        "What is the derivative of q·k/√d_k with respect to q, and with respect to k?",
        ("", "", lambda S, Q, K: sloped(S, Q @ K.mT * Q.shape[-1] ** -0.5)),
        (
            "gradient-scale",
            "The gradients of Q and K lack the factor 1/√d_k.",
            lambda S, Q, K: sloped(S, S * Q.shape[-1] ** 0.5),
        ),
        (
            "gradient-scale",
            "The gradient of Q lacks the factor 1/√d_k.",
            lambda S, Q, K: sloped(S, Q @ K.detach().mT + Q.detach() @ K.mT * Q.shape[-1] ** -0.5),
        ),
        (
            "gradient-scale",
            "The gradient of K lacks the factor 1/√d_k.",
            lambda S, Q, K: sloped(S, Q @ K.detach().mT * Q.shape[-1] ** -0.5 + Q.detach() @ K.mT),
        ),
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
    [
        [[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 0]],
        [[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
    ]
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


HALF = (torch.float16, torch.bfloat16)


def scores_rounded(dtype: torch.dtype) -> Ways:
    return {"score": lambda Q, K: rounded(Q @ K.mT, dtype)}


def scaled_scores_rounded(dtype: torch.dtype) -> Ways:
    return {**scores_rounded(dtype), "limit": lambda S: rounded(S, dtype)}


def weights_rounded(dtype: torch.dtype) -> Ways:
    return {"weights": lambda W, Q: rounded(W, dtype)}


ROUNDINGS = (
    Rounding(
        "scale-rounded",
        "The scale is rounded to {}.",
        (torch.float64,),
        lambda dtype: {"scale": lambda Q, K, V: 1 / rounded(torch.tensor(float(Q.shape[-1])).double().sqrt(), dtype)},
    ),
    Rounding("half-scores", "The scores are rounded to {} before the softmax.", HALF, scores_rounded),
    Rounding("half-scores", "The scores are rounded to {} before the softmax.", HALF, scaled_scores_rounded),
    Rounding("half-weights", "The weights are rounded to {} before they meet V.", HALF, weights_rounded),
    *(
        Rounding(
            "half-scores-and-weights",
            "The scores are rounded to {} before the softmax, and the weights before they meet V.",
            HALF,
            lambda dtype, scores=scores: {**scores(dtype), **weights_rounded(dtype)},
        )
        for scores in (scores_rounded, scaled_scores_rounded)
    ),
)

CALLS = calls()
TABLE = Table(
    run=attend,
    right=RIGHT,
    changes=(*SCALE, *SCALED, *MASK, *HIDE, *SOFTMAX, *OF_SOFTMAX, *INPUTS, *SCORE, *LIMIT, *EMPTY, *WEIGHTS, *OUTPUT),
    calls=CALLS,
    basic=frozenset(call for call, (*_, mask) in CALLS.items() if mask is None),
    basic_words="without a mask",
    digits=(
        "For four dimensions",
        "Where the heads share one K and V",
        "For large queries and keys",
    ),
    also_right=ALSO_RIGHT,
    roundings=ROUNDINGS,
    cuts=CUTS,
    most_runs=8_000,  # they are quick
)

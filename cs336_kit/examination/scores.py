"""Asking multi-head attention for its scores.

The weights of two keys show by how much their scores differ. Single rows of W_Q and W_K show which of them share a head
and how the scores are scaled; whole ones, which of the two makes the queries.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_kit.examination.experiment import NoAnswerError
from cs336_kit.examination.heads import (
    CLOSE,
    D_HEAD,
    D_MODEL,
    HEADS,
    TINY,
    TOKENS,
    Finds,
    Heads,
    Weights,
    has_heads,
    has_tokens,
    normal,
    places,
)
from cs336_kit.examination.projections import EYE
from cs336_kit.examination.words import listed, number


def difference(heads: Heads, q: Tensor, k: Tensor, x: Tensor, length: int = 3) -> Tensor:
    """By how much the scores of two keys differ, in the head of each component of the joined heads.

    Args:
        x: three vectors, linearly independent: of the query, of one key and of the other.
        length: of the sequence; what is more than three is filled with zeros.
    """
    order, (_, join) = query_and_keys(heads), known_layout(heads)
    tokens = torch.cat((x[torch.tensor(order).argsort()], torch.zeros(length - 3, D_MODEL)))
    # Values that are 1 for one key and 0 for the others: the answer is the weight of that key.
    values = torch.linalg.pinv(x).T.unsqueeze(1).expand(-1, D_MODEL, -1)
    weights = [
        heads.answer(Weights(q, k, v, EYE), tokens).flatten()[places(join, length)][:, order[0]].flatten()
        for v in values[1:]
    ]
    logarithms = (weights[0] / weights[1]).log()
    if not logarithms.isfinite().all():
        raise NoAnswerError("the weights are not positive")
    return logarithms


def known_layout(heads: Heads) -> tuple[str, str]:
    if heads.layout is None or heads.layout[0] == "view" or not heads.scores_readable:
        raise NoAnswerError("the weights of one query do not show its scores")
    return heads.layout


def query_and_keys(heads: Heads) -> tuple[int, int, int]:
    """Of three tokens, one that sees the other two, and these."""
    sees = heads.known_seen() > TINY
    for query, one, other in ((2, 0, 1), (0, 1, 2)):
        if sees[query, one] and sees[query, other]:
            return query, one, other
    raise NoAnswerError("no token sees two others")


def _row_difference(heads: Heads, row: int, size: float = 1.0, length: int = 3) -> Tensor:
    """By how much the scores of two keys differ, of which one meets the query in one row of W_Q and W_K."""
    unit = torch.zeros(D_MODEL, D_MODEL)
    unit[row, row] = size
    x = EYE[[row, row + 1, row + 2]]
    x[1, row] = 2.0
    return difference(heads, unit, unit, x, length)


def grouping(heads: Heads) -> Finds:
    """List the components of the answer that follow a row of W_Q and W_K."""
    rows = (0, 1, D_HEAD)
    follows = [(_row_difference(heads, row).abs() > TINY).nonzero().flatten().tolist() for row in rows]
    first, second, third = follows
    id, means = "groups", "The heads hold the wrong rows of the weights."
    if first == second == third and len(first) == D_MODEL:
        id, means = "one-head", "All rows share one head, whatever num_heads is."
        once, twice = (float(_row_difference(heads, 0, size)[0]) for size in (1.0, 2.0))
        if abs(twice / once - 4) < CLOSE:
            heads.head_of_row = lambda row: 0
        else:
            heads.averaged = True
            id, means = "heads-averaged", "The heads share their weights: they are averaged over the heads."
    elif first == second and len(first) == len(third) == D_HEAD:
        heads.head_of_row = lambda row: row // D_HEAD
    elif len(first) == len(second) == D_HEAD and second == third:
        id, means = "heads-inner", "You split and join as (d_head heads); the heads are the outer factor."
        heads.head_of_row = lambda row: row % HEADS
    right = [list(range(row // D_HEAD * D_HEAD, (row // D_HEAD + 1) * D_HEAD)) for row in rows]
    if follows == right or known_layout(heads)[0] != "right":
        return None
    if id == "heads-inner":
        heads.layout = ("inner", "inner")
    row, found, wanted = next(each for each in zip(rows, follows, right, strict=True) if each[1] != each[2])
    changed = f"the weights behind components {listed(found)} of the answer" if found else "no weight"
    return heads.finding(
        id,
        f"With d_model = 12 and 3 heads, row {row} of W_Q and W_K changes {changed}; it should change those behind "
        f"components {listed(wanted)}, which are its head.",
        means if found else "",
        "After the projection, which components of one token belong to head 0? Are they the ones in your head 0?",
        has_heads,
    )


def scale(heads: Heads) -> Finds:
    """By which factor the scores are scaled, and whether they are products at all."""
    if heads.head_of_row is None:
        raise NoAnswerError("the heads are not known")
    once, twice = (float(_row_difference(heads, 0, size)[0]) for size in (1.0, 2.0))
    if abs(twice / once - 4) > CLOSE:
        return heads.finding(
            "scores-no-product",
            f"Queries and keys twice as long make the difference of two scores {number(twice / once)} times as large; "
            "it should be 4 times as large.",
            "The scores are not the products of queries and keys, or the weights are not those of their softmax.",
            "What happens to q and k before they are multiplied, and to the scores afterwards?",
            has_tokens,
        )
    heads.scale = once / 2
    one_head = heads.head_of_row(0) == heads.head_of_row(D_MODEL - 1)
    if any(abs(heads.scale / right - 1) < CLOSE for right in (D_HEAD**-0.5, D_MODEL**-0.5)[: 1 + one_head]):
        return None
    known = {
        "1/√d_model": D_MODEL**-0.5,
        "1: nothing divides them": 1.0,
        "1/d_head": 1 / D_HEAD,
        "1/d_model": 1 / D_MODEL,
        "1/√num_heads": HEADS**-0.5,
        "1/√64, as if a width were hard-coded": 0.125,
        "√d_head, which should divide": D_HEAD**0.5,
        "1/√d_head times log 2, as if softmax took powers of 2": D_HEAD**-0.5 * math.log(2),
    }
    said = next((f"That is {name}." for name, factor in known.items() if abs(heads.scale / factor - 1) < CLOSE), "")
    longer = float(_row_difference(heads, 0, length=TOKENS)[0]) / 2
    if abs(longer / heads.scale - 1) > CLOSE:
        said = f"That is with 3 tokens; with {TOKENS} it is {number(longer)}."
    return heads.finding(
        "scale",
        f"With d_model = 12 and 3 heads, your scores are q · k times {number(heads.scale)}; the factor "
        "should be 1/√d_head = 0.5.",
        said,
        "How long are the two vectors whose dot product is a score?",
        has_tokens,
    )


def roles(heads: Heads) -> Finds:
    """Check that W_Q makes the queries and W_K the keys, the right way round."""
    if heads.head_of_row is None or heads.scale is None:
        raise NoAnswerError("the heads are not known")
    (q, k), x = normal(2, D_MODEL, D_MODEL) / 4, normal(4, 3, D_MODEL)[3]
    came, scaled = difference(heads, q, k, x), heads.scale
    groups = torch.tensor([heads.head_of_row(row) for row in range(D_MODEL)])

    def differences(queries: Tensor, keys: Tensor) -> Tensor:
        products = (queries @ x[0]) * (keys @ (x[1] - x[2])) * scaled
        return torch.zeros(HEADS).index_add(0, groups, products)

    def made_by(queries: Tensor, keys: Tensor) -> bool:
        found, expected = came.sort().values, differences(queries, keys)[groups].sort().values
        return bool((found - expected).abs().max() < CLOSE)

    other, earlier = heads.names[1], heads.correct
    swapped = f"{other} makes the queries, and W_Q the keys"
    ways: tuple[tuple[str, str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]], ...] = (
        ("", "", lambda q, k: (q, k)),
        ("scores-transposed", f"You multiply by W_Q and {other} the wrong way round.", lambda q, k: (q.T, k.T)),
        ("queries-keys-swapped", f"{swapped}.", lambda q, k: (k, q)),
        ("queries-keys-swapped", f"{swapped}, both the wrong way round.", lambda q, k: (k.T, q.T)),
        ("queries-transposed", "You multiply by W_Q the wrong way round.", lambda q, k: (q.T, k)),
        ("keys-transposed", f"You multiply by {other} the wrong way round.", lambda q, k: (q, k.T)),
        ("keys-by-q", "W_Q makes the keys too.", lambda q, k: (q, q)),
        ("queries-by-k", f"{other} makes the queries too.", lambda q, k: (k, k)),
    )
    id, means, way = next((each for each in ways if made_by(*each[2](q, k))), ("scores", "", None))
    if way is None:
        heads.scores_readable = False
    else:

        def correct(weights: Weights) -> Weights:
            q, k = way(weights.q, weights.k)
            return earlier(weights._replace(q=q, k=k))

        heads.correct = correct
    if not id or (id == "scores-transposed" and heads.values_transposed):  # all three are, which was said
        return None
    heads.unused |= {"keys-by-q": {"k_proj_weight"}, "queries-by-k": {"q_proj_weight"}}.get(id, set())
    return heads.finding(
        id,
        f"With random W_Q and {other} the scores of two keys differ by {number(came[0])} in head 0; with q = W_Q x and "
        f"k = {other} x they should differ by {number(differences(q, k)[0])}.",
        means,
        "Which of the weights makes the queries, and which the keys? Which axis of each meets the input?",
        has_tokens,
    )


def overflow(heads: Heads) -> Finds:
    """Check that large scores do not give NaN."""
    came = heads.answer(Weights(20 * EYE, 20 * EYE, EYE, EYE), torch.ones(2, D_MODEL))[-1]
    if came.isfinite().all():
        return None
    if not heads.answer(Weights(TINY * EYE, TINY * EYE, EYE, EYE), torch.ones(2, D_MODEL))[-1].isfinite().all():
        return None
    score = 400 * D_HEAD * (heads.scale or D_HEAD**-0.5)
    return heads.finding(
        "overflow",
        f"Two scores of {number(score)} give {number(came[~came.isfinite()][0])}; equal scores should give equal "
        "weights, however large they are.",
        "The exponential of a large score is more than a float can hold.",
        "What may be subtracted from all scores of a query without changing their softmax?",
    )

"""Attention as right programs compute it: in the dtype of its inputs, zeros for a query that may attend to nothing.

`attention` is put together from parts that can be exchanged: every default is right.
"""

import math
from collections.abc import Callable

import torch
from einops import einsum
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.problems.scaled_dot_product_attention.program import RIGHT, attend
from cs336_staff.authoring.room import Part
from cs336_staff.problems.scaled_dot_product_attention import reference
from cs336_staff.problems.softmax.programs import (
    softmax,
    softmax_einops,
    softmax_logsumexp,
    softmax_of_torch,
    widened,
)

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def scale(Q: Tensor, K: Tensor) -> Tensor:
    """The scores of attention."""
    return Q @ K.mT / math.sqrt(Q.shape[-1])


def hide(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores with what the mask forbids left out."""
    return scores.masked_fill(~mask, -math.inf)


def causal(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None,
    *,
    score: Part = scale,
    hide: Part = hide,
    softmax: Part = softmax,
    average: Part = torch.matmul,
) -> Tensor:
    scores = score(Q, K)
    if mask is None:
        return average(softmax(scores, -1), V)
    hidden = hide(scores, mask)
    nothing = (hidden == -math.inf).all(-1, keepdim=True)
    return average(softmax(hidden, -1).masked_fill(nothing, 0.0), V)


def attention_in_steps(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, /, **ways: Part) -> Tensor:
    """Attention in the steps of its examination, some of them done in other ways."""
    return attend({**RIGHT, **ways}, widened(Q), widened(K), widened(V), mask).to(Q.dtype)


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None, attention: Part = attention) -> Tensor:
    """The weights of attention: what it makes of values that are the identity."""
    return attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)


def attention_of(**others: Part) -> Attention:
    """Attention with other parts that are right."""

    def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return attention(widened(Q), widened(K), widened(V), mask, **others).to(Q.dtype)

    return attend


def scaled_queries(Q: Tensor, K: Tensor) -> Tensor:
    return Q / math.sqrt(Q.shape[-1]) @ K.mT


attention_einsum = attention_of(
    score=lambda Q, K: torch.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1]),
    average=lambda weights, V: torch.einsum("...qk,...kv->...qv", weights, V),
)


attention_einops = attention_of(
    score=lambda Q, K: einsum(Q, K, "... q d, ... k d -> ... q k") * Q.shape[-1] ** -0.5,
    hide=lambda scores, mask: torch.where(mask, scores, -math.inf),
    softmax=softmax_einops,
    average=lambda weights, V: einsum(weights, V, "... q k, ... k v -> ... q v"),
)


attention_scaled_queries = attention_of(score=scaled_queries, softmax=softmax_logsumexp)


def attention_matmul(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        # Not in a row that is all False: its softmax would be NaN, and so would its gradient.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask & mask.any(-1, True), -math.inf)
    weights = torch.softmax(scores, -1)
    return ((weights if mask is None else weights * mask.any(-1, keepdim=True)) @ widened(V)).to(Q.dtype)


def attention_in_float64(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return reference.run_scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask).to(Q.dtype)


def attention_by_rows(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """One query at a time, over the keys that it may attend to and no others."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    allowed = torch.ones(1, 1, dtype=torch.bool) if mask is None else mask
    allowed = allowed.expand(*batch, Q.shape[-2], K.shape[-2]).reshape(-1, Q.shape[-2], K.shape[-2])
    Qs, Ks, Vs = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (Q, K, V))
    rows = [
        softmax_of_torch(keys[may] @ query / math.sqrt(Q.shape[-1]), -1) @ values[may]
        for queries, keys, values, rows in zip(*map(widened, (Qs, Ks, Vs)), allowed, strict=True)
        for query, may in zip(queries, rows, strict=True)
    ]
    return torch.stack(rows).reshape(*batch, Q.shape[-2], V.shape[-1]).to(Q.dtype)


def attention_in_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Two queries at a time."""
    masks = [None] * Q.shape[-2] if mask is None else mask.expand(*mask.shape[:-2], Q.shape[-2], -1).split(2, -2)
    return torch.cat([attention_matmul(q, K, V, m) for q, m in zip(Q.split(2, -2), masks, strict=False)], -2)


def attention_weights_times_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Exponentials over the largest allowed score, multiplied by the mask: no infinity anywhere."""
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    may = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    largest = scores.masked_fill(may == 0, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    exponentials = torch.exp((scores - largest).clamp(max=0)) * may
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials / total.masked_fill(total == 0, 1) @ widened(V)).to(Q.dtype)


def attention_of_torch(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's own, fused."""
    dtype = Q.dtype
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    Q, K, V = (widened(x).expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
    # A row with nothing to attend to: softmax gives NaN, attention zeros.
    return F.scaled_dot_product_attention(Q, K, V, mask).nan_to_num(0.0).to(dtype)


def attention_values_first(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Values weighted by exponentials and divided by their sum at the end."""
    scores = torch.einsum("...qd,...kd->...qk", widened(Q), widened(K)) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=scores.dtype))
    largest = scores.amax(-1, keepdim=True)
    exponentials = torch.exp(scores - largest.masked_fill(largest.isinf(), 0))
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials @ widened(V) / total.masked_fill(total == 0, 1)).to(Q.dtype)


STYLES = {
    "einsum": attention_einsum,
    "einops": attention_einops,
    "matmul": attention_matmul,
    "scaled queries": attention_scaled_queries,
    "float64 inside": attention_in_float64,
    "row by row": attention_by_rows,
    "in chunks": attention_in_chunks,
    "weights times mask": attention_weights_times_mask,
    "fused": attention_of_torch,
    "values first": attention_values_first,
}

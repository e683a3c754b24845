"""Attention as right programs compute it: in the dtype of its inputs, zeros for a query that may attend to nothing."""

import math
from collections.abc import Callable
from functools import partial

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
    widened,
)

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, /, **ways: Part) -> Tensor:
    """Attention in the steps of its examination, some of them done in other ways."""
    return attend({**RIGHT, **ways}, widened(Q), widened(K), widened(V), mask).to(Q.dtype)


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None, attention: Part = attention) -> Tensor:
    """The weights of attention: what it makes of values that are the identity."""
    return attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)


attention_einsum = partial(
    attention,
    score=lambda Q, K: torch.einsum("...qd,...kd->...qk", Q, K),
    softmax=lambda S: softmax(S, -1),
    output=lambda W, V, Q, mask: torch.einsum("...qk,...kv->...qv", W, V),
)


attention_einops = partial(
    attention,
    score=lambda Q, K: einsum(Q, K, "... q d, ... k d -> ... q k"),
    hide=lambda S, mask, softmax: softmax(torch.where(mask, S, -math.inf)),
    softmax=lambda S: softmax_einops(S, -1),
    output=lambda W, V, Q, mask: einsum(W, V, "... q k, ... k v -> ... q v"),
)


attention_scaled_queries = partial(
    attention,
    inputs=lambda Q, K, V: (Q / math.sqrt(Q.shape[-1]), K, V),
    scale=lambda Q, K, V: 1.0,
    softmax=lambda S: softmax_logsumexp(S, -1),
)


def attention_matmul(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        # Not in a row that is all False: its softmax would be NaN, and so would its gradient.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask & mask.any(-1, True), -math.inf)
    weights = torch.softmax(scores, -1)
    return ((weights if mask is None else weights * mask.any(-1, keepdim=True)) @ widened(V)).to(Q.dtype)


def attention_in_float64(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return reference.run_scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask).to(Q.dtype)


def attention_in_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Two queries at a time."""
    masks = [None] * Q.shape[-2] if mask is None else mask.expand(*mask.shape[:-2], Q.shape[-2], -1).split(2, -2)
    return torch.cat([attention_matmul(q, K, V, m) for q, m in zip(Q.split(2, -2), masks, strict=False)], -2)


def attention_of_torch(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's own, fused."""
    dtype = Q.dtype
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    Q, K, V = (widened(x).expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
    # A row with nothing to attend to: softmax gives NaN, attention zeros.
    return F.scaled_dot_product_attention(Q, K, V, mask).nan_to_num(0.0).to(dtype)


STYLES = {
    "einsum": attention_einsum,
    "einops": attention_einops,
    "matmul": attention_matmul,
    "scaled queries": attention_scaled_queries,
    "float64 inside": attention_in_float64,
    "in chunks": attention_in_chunks,
    "fused": attention_of_torch,
}

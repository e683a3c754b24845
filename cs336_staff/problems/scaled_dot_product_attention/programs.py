"""Attention as right programs compute it: in the dtype of its inputs, zeros for a query that may attend to nothing."""

import math
from functools import partial

import torch
from einops import einsum
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.scaled_dot_product_attention.program import RIGHT, attend
from cs336_staff.problems.softmax.programs import softmax, widened


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, /, **ways: Part) -> Tensor:
    """Attention in steps, some of them done in other ways."""
    return attend({**RIGHT, **ways}, widened(Q), widened(K), widened(V), mask).to(Q.dtype)


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None, attention: Part = attention) -> Tensor:
    """The weights of attention: what it makes of values that are the identity."""
    return attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)


attention_einsum = partial(
    attention,
    score=lambda Q, K: einsum(Q, K, "... q d, ... k d -> ... q k"),
    hide=lambda S, mask, softmax: softmax(torch.where(mask, S, -math.inf)),
    softmax=lambda S: softmax(S, -1),
    output=lambda W, V, Q, mask: einsum(W, V, "... q k, ... k v -> ... q v"),
)


def attention_matmul(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        # Not in a row that is all False: its softmax would be NaN, and so would its gradient.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask & mask.any(-1, True), -math.inf)
    weights = torch.softmax(scores, -1)
    return ((weights if mask is None else weights * mask.any(-1, keepdim=True)) @ widened(V)).to(Q.dtype)


STYLES = {"einsum": attention_einsum, "matmul": attention_matmul}

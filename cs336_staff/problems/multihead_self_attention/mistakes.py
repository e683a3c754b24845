"""Causal multi-head attention that is wrong."""

import math
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.room import wrong
from cs336_staff.problems.linear.programs import linear
from cs336_staff.problems.multihead_self_attention.programs import count_positions, merge, multihead, split
from cs336_staff.problems.rope.programs import rotate
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, causal


def of_d_model(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q / math.sqrt(Q.shape[-3]), K, V, mask)


def joint(Q: Tensor, K: Tensor, V: Tensor, pattern: str, **sizes: int) -> tuple[Tensor, ...]:
    """The joint weight, cut into three by an einops pattern."""
    return tuple(rearrange(torch.cat((Q, K, V)), pattern, three=3, **sizes))


def over_d_model(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    at = positions if positions.ndim == 1 else positions.squeeze(-2)
    return split(rotate(merge(x), at, theta), x.shape[-3])


def exponent_over_d_model(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    exponents = -torch.arange(0, x.shape[-1], 2) / (x.shape[-1] * x.shape[-3])
    return rotate(x, positions, theta, angles=lambda x, positions, theta: positions.unsqueeze(-1) * theta**exponents)


def along_heads(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return rotate(x.transpose(-3, -2), positions, theta).transpose(-3, -2)


def rotated_afterwards(theta: float | None = None, token_positions: Tensor | None = None, **arguments: Any) -> Tensor:
    if theta is None:
        return multihead(**arguments)

    def rotate_and_merge(heads: Tensor) -> Tensor:
        return merge(rotate(heads, count_positions(token_positions, heads.shape[-2]), theta))

    return multihead(merge=rotate_and_merge, **arguments)


MISTAKES = (
    # Cutting vectors into heads, and joining the heads
    wrong(
        "multihead-split-by-view",
        "splits the heads with view or reshape and without a transpose",
        split=lambda x, heads: x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads),
    ),
    wrong(
        "multihead-heads-inner",
        "splits as (d_head heads); the heads are the outer factor, (heads d_head)",
        split=lambda x, heads: rearrange(x, "... sequence (d head) -> ... head sequence d", head=heads),
    ),
    wrong(
        "multihead-merge-by-view",
        "joins the heads with view or reshape and without a transpose",
        merge=lambda x: x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1]),
    ),
    wrong(
        "multihead-merge-inner",
        "joins as (d_head heads); the heads are the outer factor, (heads d_head)",
        merge=lambda x: rearrange(x, "... head sequence d -> ... sequence (d head)"),
    ),
    wrong(
        "multihead-not-split",
        "uses one head of size d_model, whatever num_heads is",
        split=lambda x, heads: x.unsqueeze(-3),
    ),
    wrong(
        "multihead-heads-before-sequence",
        "attends over the heads of one token, not over the tokens of one head",
        split=lambda x, heads: rearrange(x, "... sequence (head d) -> ... sequence head d", head=heads),
        mask=lambda length: None,
        merge=lambda x: rearrange(x, "... sequence head d -> ... sequence (head d)"),
    ),
    wrong("multihead-scaled-by-d_model", "divides the scores by √d_model, not by √d_head", attention=of_d_model),
    # Another mask than the causal one
    wrong("multihead-no-mask", "uses no causal mask", mask=lambda length: None),
    wrong(
        "multihead-mask-peeks",
        "shifts the mask by one: every token sees the next one",
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(1),
    ),
    wrong(
        "multihead-mask-strict",
        "shifts the mask by one: no token sees itself",
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(-1),
    ),
    wrong(
        "multihead-mask-upper",
        "masks with the upper triangle: every token sees only itself and later ones",
        mask=lambda length: causal(length, length).mT,
    ),
    wrong(
        "multihead-mask-inverted",
        "makes the mask True where a token may not look",
        mask=lambda length: ~causal(length, length),
    ),
    # Weights in another place
    wrong(
        "multihead-qkv-by-head",
        "cuts the joint weight as (heads 3 d_head), not as (3 heads d_head)",
        weights=lambda Q, K, V, heads: joint(Q, K, V, "(head three d) d_in -> three (head d) d_in", head=heads),
    ),
    wrong(
        "multihead-qkv-by-row",
        "cuts the joint weight as (d_model 3), not as (3 d_model)",
        weights=lambda Q, K, V, heads: joint(Q, K, V, "(d three) d_in -> three d d_in"),
    ),
    wrong(
        "multihead-queries-keys-swapped",
        "swaps the weights of queries and keys",
        weights=lambda Q, K, V, heads: (K, Q, V),
    ),
    wrong(
        "multihead-keys-values-swapped",
        "swaps the weights of keys and values",
        weights=lambda Q, K, V, heads: (Q, V, K),
    ),
    wrong("multihead-no-output-projection", "leaves out the output projection", output=lambda x, W: x),
    wrong(
        "multihead-output-transposed",
        "multiplies by the weight of the output projection the wrong way round",
        output=lambda x, W: linear(x, W.T),
    ),
    wrong(
        "multihead-qkv-transposed",
        "multiplies by the weights of queries, keys and values the wrong way round",
        weights=lambda Q, K, V, heads: (Q.T, K.T, V.T),
    ),
    # RoPE in another place, or at other positions
    wrong("multihead-rope-missing", "does not use RoPE", turn=lambda Q, K, V, rotate: (Q, K, V)),
    wrong(
        "multihead-rope-on-values",
        "rotates the values too",
        turn=lambda Q, K, V, rotate: (rotate(Q), rotate(K), rotate(V)),
    ),
    wrong(
        "multihead-rope-on-queries-only",
        "rotates the queries and not the keys",
        turn=lambda Q, K, V, rotate: (rotate(Q), K, V),
    ),
    wrong(
        "multihead-rope-after-attention",
        "rotates what attention gives, not the queries and keys that go into it",
        rotated_afterwards,
    ),
    wrong(
        "multihead-rope-over-d_model",
        "rotates the whole of d_model before the split into heads",
        rotate=over_d_model,
    ),
    wrong(
        "multihead-rope-exponent-d_model",
        "divides the exponent of theta by d_model, not by d_head",
        rotate=exponent_over_d_model,
    ),
    wrong("multihead-rope-along-heads", "gives the positions to the heads, not to the tokens", rotate=along_heads),
    wrong(
        "multihead-positions-ignored",
        "counts positions from 0 although token positions are given",
        positions=lambda given, length: torch.arange(length),
    ),
    wrong(
        "multihead-no-default-positions",
        "leaves RoPE out when no token positions are given",
        positions=lambda given, length: torch.zeros(length) if given is None else given.unsqueeze(-2),
    ),
    wrong(
        "multihead-positions-by-head",
        "lays the positions of each sequence along the axis of the heads",
        positions=lambda given, length: torch.arange(length) if given is None else given,
    ),
)

"""Causal multi-head attention that is wrong."""

import math
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.misconceptions.entry import Misconception, in_multihead
from cs336_staff.authoring.parts import attention, causal, count_positions, linear, merge, multihead, rotate, split


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


def rotated_afterwards(theta: float, token_positions: Tensor | None = None, **arguments: Any) -> Tensor:
    def rotate_and_merge(heads: Tensor) -> Tensor:
        return merge(rotate(heads, count_positions(token_positions, heads.shape[-2]), theta))

    return multihead(merge=rotate_and_merge, **arguments)


ENTRIES = (
    # Cutting vectors into heads, and joining the heads
    in_multihead(
        "multihead-split-by-view",
        "splits the heads with view or reshape and without a transpose",
        split=lambda x, heads: x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads),
    ),
    in_multihead(
        "multihead-heads-inner",
        "splits as (d_head heads); the heads are the outer factor, (heads d_head)",
        split=lambda x, heads: rearrange(x, "... sequence (d head) -> ... head sequence d", head=heads),
    ),
    in_multihead(
        "multihead-merge-by-view",
        "joins the heads with view or reshape and without a transpose",
        merge=lambda x: x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1]),
    ),
    in_multihead(
        "multihead-merge-inner",
        "joins as (d_head heads); the heads are the outer factor, (heads d_head)",
        merge=lambda x: rearrange(x, "... head sequence d -> ... sequence (d head)"),
    ),
    in_multihead(
        "multihead-not-split",
        "uses one head of size d_model, whatever num_heads is",
        split=lambda x, heads: x.unsqueeze(-3),
    ),
    in_multihead(
        "multihead-heads-before-sequence",
        "attends over the heads of one token, not over the tokens of one head",
        split=lambda x, heads: rearrange(x, "... sequence (head d) -> ... sequence head d", head=heads),
        mask=lambda length: None,
        merge=lambda x: rearrange(x, "... sequence head d -> ... sequence (head d)"),
    ),
    in_multihead("multihead-scaled-by-d_model", "divides the scores by √d_model, not by √d_head", attention=of_d_model),
    # Another mask than the causal one
    in_multihead("multihead-no-mask", "uses no causal mask", mask=lambda length: None),
    in_multihead(
        "multihead-mask-peeks",
        "shifts the mask by one: every token sees the next one",
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(1),
    ),
    in_multihead(
        "multihead-mask-strict",
        "shifts the mask by one: no token sees itself",
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(-1),
    ),
    in_multihead(
        "multihead-mask-upper",
        "masks with the upper triangle: every token sees only itself and later ones",
        mask=lambda length: causal(length, length).mT,
    ),
    in_multihead(
        "multihead-mask-inverted",
        "makes the mask True where a token may not look",
        mask=lambda length: ~causal(length, length),
    ),
    # Weights in another place
    in_multihead(
        "multihead-qkv-by-head",
        "cuts the joint weight as (heads 3 d_head), not as (3 heads d_head)",
        weights=lambda Q, K, V, heads: joint(Q, K, V, "(head three d) d_in -> three (head d) d_in", head=heads),
    ),
    in_multihead(
        "multihead-qkv-by-row",
        "cuts the joint weight as (d_model 3), not as (3 d_model)",
        weights=lambda Q, K, V, heads: joint(Q, K, V, "(d three) d_in -> three d d_in"),
    ),
    in_multihead(
        "multihead-queries-keys-swapped",
        "swaps the weights of queries and keys",
        weights=lambda Q, K, V, heads: (K, Q, V),
    ),
    in_multihead(
        "multihead-keys-values-swapped",
        "swaps the weights of keys and values",
        weights=lambda Q, K, V, heads: (Q, V, K),
    ),
    in_multihead("multihead-no-output-projection", "leaves out the output projection", output=lambda x, W: x),
    in_multihead(
        "multihead-output-transposed",
        "multiplies by the weight of the output projection the wrong way round",
        output=lambda x, W: linear(x, W.T),
    ),
    in_multihead(
        "multihead-qkv-transposed",
        "multiplies by the weights of queries, keys and values the wrong way round",
        weights=lambda Q, K, V, heads: (Q.T, K.T, V.T),
    ),
    # RoPE in another place, or at other positions
    in_multihead("multihead-rope-missing", "does not use RoPE", turn=lambda Q, K, V, rotate: (Q, K, V)),
    in_multihead(
        "multihead-rope-on-values",
        "rotates the values too",
        turn=lambda Q, K, V, rotate: (rotate(Q), rotate(K), rotate(V)),
    ),
    in_multihead(
        "multihead-rope-on-queries-only",
        "rotates the queries and not the keys",
        turn=lambda Q, K, V, rotate: (rotate(Q), K, V),
    ),
    Misconception(
        "multihead-rope-after-attention",
        "rotates what attention gives, not the queries and keys that go into it",
        "multihead_self_attention",
        {"run_multihead_self_attention_with_rope": rotated_afterwards},
    ),
    in_multihead(
        "multihead-rope-over-d_model",
        "rotates the whole of d_model before the split into heads",
        rotate=over_d_model,
    ),
    in_multihead(
        "multihead-rope-exponent-d_model",
        "divides the exponent of theta by d_model, not by d_head",
        rotate=exponent_over_d_model,
    ),
    in_multihead(
        "multihead-rope-along-heads", "gives the positions to the heads, not to the tokens", rotate=along_heads
    ),
    in_multihead(
        "multihead-positions-ignored",
        "counts positions from 0 although token positions are given",
        positions=lambda given, length: torch.arange(length),
    ),
    in_multihead(
        "multihead-no-default-positions",
        "leaves RoPE out when no token positions are given",
        positions=lambda given, length: torch.zeros(length) if given is None else given.unsqueeze(-2),
    ),
    in_multihead(
        "multihead-positions-by-head",
        "lays the positions of each sequence along the axis of the heads",
        positions=lambda given, length: torch.arange(length) if given is None else given,
    ),
)

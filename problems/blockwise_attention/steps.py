"""Blockwise attention in steps: what is carried from block to block."""

import math

import torch
from torch import Tensor

from problems.scaled_dot_product_attention.steps import VARIANCE, follow_attention
from whichline.way.steps import Steps

CUT = "Which queries, which keys, and which part of the mask belong to this block?"
LARGEST = "What is the largest score so far, before the first block, and after each?"
SHRINK = "The sums so far are relative to the old maximum. By what factor do they shrink when it grows?"
NOTHING = "What is −inf − (−inf), where the mask hides the whole block from a query?"
DIVIDE = "When are the weighted values divided by the sum, and how often?"


def follow_blockwise(
    step: Steps, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    step.section = "B3 Blockwise attention"
    inner = Steps()
    answer = follow_attention(inner, Q, K, V, mask)
    for each in inner.taken.values():
        if each.name != "the answer":
            step(each.name, each.tensor, each.ask, each.section)
    queries, keys = Q.shape[-2], K.shape[-2]
    if mask is not None:
        mask = step("the mask of every query and key", mask.expand(*mask.shape[:-2], queries, keys), CUT)
    size = block_size or max(queries, keys)
    step("the number of blocks of queries", float(math.ceil(queries / size)), CUT)
    step("the number of blocks of keys", float(math.ceil(keys / size)), CUT)
    for i, rows in enumerate(_cut(queries, size), 1):
        tile = None if mask is None else mask[..., rows, :]
        follow_rows(step, f" of query block {i}", Q[..., rows, :], K, V, tile, size)
    follow_rows(step, " of all queries", Q, K, V, mask, size)  # where queries are not cut
    for i, rows in enumerate(_cut(queries, size), 1):  # where keys are not cut
        tile = None if mask is None else mask[..., rows, :]
        follow_rows(step, f" of query block {i}, all at once", Q[..., rows, :], K, V, tile, keys)
    return step("the answer", answer, DIVIDE)


def _cut(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def follow_rows(step: Steps, of: str, q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, width: int) -> None:
    """The answers to some queries, with the keys in blocks of this width."""
    step(f"the queries{of}", q, CUT)
    scores = q @ K.mT / math.sqrt(q.shape[-1])
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    state = scores.new_full((*scores.shape[:-1], 1), -math.inf), scores.new_zeros(1), V.new_zeros(1)
    for j, columns in enumerate(_cut(K.shape[-2], width), 1):
        at = f"key block {j}{of}"
        state = follow_block(
            step, at, state, q, K[..., columns, :], V[..., columns, :], None if mask is None else mask[..., columns]
        )
    m, total, weighted = state
    positive = step(f"ℓ{of}, and 1 where it is 0", torch.where(total == 0, 1.0, total), NOTHING)
    step(f"the logsumexp{of}", m + total.log())
    step(f"the answer{of}", weighted / positive, DIVIDE)


State = tuple[Tensor, Tensor, Tensor]  # m, ℓ and o


def follow_block(step: Steps, at: str, state: State, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> State:
    """The largest score, ℓ and o after one more block of keys."""
    before, total, weighted = state
    for name, x in (("queries", q), ("keys", k), ("values", v)):
        step(f"the {name} of {at}", x, CUT)
    step(f"the queries / √d_k of {at}", q / math.sqrt(q.shape[-1]), VARIANCE)
    raw = step(f"the scores of {at}", q @ k.mT, "Which queries meet which keys in this block?")
    scores = step(f"the scaled scores of {at}", raw / math.sqrt(q.shape[-1]), VARIANCE)
    if mask is not None:
        step(f"the mask of {at}", mask, CUT)
        step(f"the mask, inverted, of {at}", ~mask, CUT)
        scores = step(f"the masked, scaled scores of {at}", scores.masked_fill(~mask, -math.inf), CUT)
    step(f"m before {at}", before, LARGEST)
    step(f"ℓ before {at}", total.expand_as(before), SHRINK)
    step(f"o before {at}", weighted, SHRINK)
    largest = step(f"the largest scores of {at}", scores.amax(-1, keepdim=True), LARGEST)
    m = step(f"m after {at}", torch.maximum(before, largest), LARGEST)
    finite = step(f"m after {at}, and 0 where it is −inf", torch.where(m == -math.inf, 0.0, m), NOTHING)
    step(f"s − m of {at}", scores - finite, LARGEST)
    e = step(f"exp(s − m) of {at}", (scores - finite).exp(), LARGEST)
    summed = step(f"Σ exp(s − m) of {at}", e.sum(-1, keepdim=True), LARGEST)
    added = step(f"Σ exp(s − m) v of {at}", e @ v, "Which values belong to these keys?")
    step(f"m − m′ at {at}", before - finite, SHRINK)
    factor = step(f"the factor exp(m − m′) at {at}", (before - finite).exp(), SHRINK)
    step(f"the factor at {at}, and 1 where all was hidden", torch.where(m == -math.inf, 1.0, factor))
    step(f"ℓ before {at}, shrunk", factor * total, SHRINK)
    total = step(f"ℓ after {at}", factor * total + summed, SHRINK)
    step(f"o before {at}, shrunk", (factor * weighted).expand_as(added), SHRINK)
    weighted = step(f"o after {at}", factor * weighted + added, SHRINK)
    return m, total, weighted

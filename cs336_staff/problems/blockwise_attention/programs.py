"""Blockwise attention as right programs compute it; the parts of `blockwise` can be exchanged."""

import math
from functools import partial

import torch
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.scaled_dot_product_attention.programs import attention_matmul
from cs336_staff.problems.softmax.programs import widened

CHOSEN_BLOCK_SIZE = 64  # where none is given: larger than any sequence of the cases


def scale(Q: Tensor, K: Tensor) -> Tensor:
    """The scores of a block."""
    return Q @ K.mT / math.sqrt(Q.shape[-1])


def hide(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores with what the mask forbids left out."""
    return scores.masked_fill(~mask, -math.inf)


def cut(length: int, size: int) -> list[slice]:
    """The blocks of a sequence; the last may be shorter."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def tile(mask: Tensor, rows: slice, columns: slice, queries: int, keys: int) -> Tensor:
    return mask.expand(*mask.shape[:-2], queries, keys)[..., rows, columns]


# What the online softmax carries from block to block: the largest score so far, the sum of the exponentials and the
# sum of the values weighted by them, one row for each query.
State = tuple[Tensor, Tensor, Tensor]


def start(Q: Tensor, V: Tensor) -> State:
    total = Q.new_zeros(*Q.shape[:-1], 1)
    return torch.full_like(total, -math.inf), total, Q.new_zeros(*Q.shape[:-1], V.shape[-1])


def running_maximum(before: Tensor, scores: Tensor) -> Tensor:
    return torch.maximum(before, scores.amax(-1, keepdim=True))


def finite(maximum: Tensor) -> Tensor:
    """-inf, where nothing was visible so far, becomes 0: -inf - -inf would be NaN."""
    return maximum.masked_fill(maximum == -math.inf, 0.0)


def absorb(state: State, scores: Tensor, V: Tensor, *, maximum: Part = running_maximum) -> State:
    """Compute what is carried after one more block."""
    before, total, weighted = state
    now = maximum(before, scores)
    weights, factor = torch.exp(scores - finite(now)), torch.exp(before - finite(now))
    return now, total * factor + weights.sum(-1, keepdim=True), weighted * factor + weights @ V


def divide(state: State) -> Tensor:
    """A query that saw nothing gets zeros."""
    _, total, weighted = state
    return weighted / total.masked_fill(total == 0, 1.0)


def join(blocks: list[Tensor], Q: Tensor) -> Tensor:
    return torch.cat(blocks, -2).to(Q.dtype)


def blockwise(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    block_size: int | None = None,
    *,
    score: Part = scale,
    tile: Part = tile,
    hide: Part = hide,
    absorb: Part = absorb,
    divide: Part = divide,
    join: Part = join,
) -> Tensor:
    """The online softmax over tiles of queries and keys; the parts are in the order in which they are used."""
    queries, keys = Q.shape[-2], K.shape[-2]
    answers = []
    for rows in cut(queries, min(block_size or CHOSEN_BLOCK_SIZE, queries)):
        q = widened(Q[..., rows, :])
        state = start(q, V)
        for columns in cut(keys, min(block_size or CHOSEN_BLOCK_SIZE, keys)):
            scores = score(q, widened(K[..., columns, :]))
            if mask is not None:
                scores = hide(scores, tile(mask, rows, columns, queries, keys))
            state = absorb(state, scores, widened(V[..., columns, :]))
        answers.append(divide(state))
    return join(answers, Q)


blockwise_tiles = partial(
    blockwise,
    score=lambda Q, K: Q / math.sqrt(Q.shape[-1]) @ K.mT,
    # The maximum cancels, and so does its gradient.
    absorb=partial(absorb, maximum=lambda before, scores: running_maximum(before, scores.detach())),
)


def in_query_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    """Whole rows of scores, for a few queries at a time."""
    queries, keys = Q.shape[-2], K.shape[-2]
    blocks = cut(queries, block_size or CHOSEN_BLOCK_SIZE)
    tiles = [None if mask is None else tile(mask, rows, slice(None), queries, keys) for rows in blocks]
    chunks = [attention_matmul(Q[..., rows, :], K, V, tile) for rows, tile in zip(blocks, tiles, strict=True)]
    return torch.cat(chunks, -2)


STYLES = {"einsum": blockwise_tiles, "matmul": in_query_chunks}

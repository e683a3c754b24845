"""Blockwise attention that cuts the wrong tile out of the mask, or leaves autograd or its inputs behind."""

import math

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import (
    blockwise,
    in_blockwise,
    in_whole_blockwise,
    tile,
)

TILE_HINT = (
    "Rows and columns of the mask are counted from the start of the sequence. Which part of it belongs to a block?"
)


def from_the_start(block: slice) -> slice:
    return slice(0, block.stop - block.start)


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None) -> Tensor:
    if mask is None:
        raise TypeError("'NoneType' object is not subscriptable")
    return blockwise(Q, K, V, mask, block_size)


def queries_in_place(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    Q *= Q.shape[-1] ** -0.5
    return blockwise(Q, K, V, mask, block_size, score=lambda Q, K: Q @ K.mT)


ENTRIES = (
    in_blockwise(
        "blockwise-mask-of-first-block",
        "you used the first tile of the mask for every block",
        TILE_HINT,
        tile=lambda mask, rows, columns, queries, keys: tile(
            mask, from_the_start(rows), from_the_start(columns), queries, keys
        ),
    ),
    in_blockwise(
        "blockwise-mask-of-first-keys",
        "you used the columns of the first block of keys in the mask for every block of keys",
        TILE_HINT,
        tile=lambda mask, rows, columns, queries, keys: tile(mask, rows, from_the_start(columns), queries, keys),
    ),
    in_blockwise(
        "blockwise-mask-of-first-queries",
        "you used the rows of the first block of queries in the mask for every block of queries",
        TILE_HINT,
        tile=lambda mask, rows, columns, queries, keys: tile(mask, from_the_start(rows), columns, queries, keys),
    ),
    in_blockwise(
        "blockwise-mask-not-expanded",
        "you cut a block out of a mask axis of size 1, of which nothing is left from the second block on",
        "A padding mask has the shape (batch, 1, keys). What is mask[..., 3:6, :] of it?",
        tile=lambda mask, rows, columns, queries, keys: mask[..., rows, columns],
    ),
    in_blockwise(
        "blockwise-mask-ignored",
        "you did not use the mask in any block",
        "Does your answer change when the mask changes?",
        hide=lambda scores, tile: scores,
    ),
    in_blockwise(
        "blockwise-mask-inverted",
        "in every block you hid what the mask allows and kept what it forbids",
        "What does True mean in the mask: may attend, or may not?",
        hide=lambda scores, tile: scores.masked_fill(tile, -math.inf),
    ),
    in_whole_blockwise(
        "blockwise-mask-required",
        "your blocks need a mask, but there may be none (mask=None)",
        "Which keys may a query attend to when no mask is given?",
        required,
    ),
    in_blockwise(
        "blockwise-fill-finite",
        "you filled the forbidden scores of a block with a large negative number (-1e9, finfo.min), not with -inf",
        "Where every key is forbidden, all scores are the same number: what is exp(score - maximum) then?",
        hide=lambda scores, tile: scores.masked_fill(~tile, torch.finfo(scores.dtype).min),
    ),
    in_blockwise(
        "blockwise-fill-0",
        "you filled the forbidden scores of a block with 0 (or multiplied them by the mask)",
        "Which number x gives exp(x) = 0 exactly, whatever the other scores are?",
        hide=lambda scores, tile: scores * tile,
    ),
    in_whole_blockwise(
        "blockwise-queries-in-place",
        "you changed Q in place, perhaps by way of a slice of it",
        "Is a slice of Q a copy? What does `q *= c` do that `q = q * c` does not?",
        queries_in_place,
    ),
    in_whole_blockwise(
        "blockwise-detached",
        "you cut the blocks off from autograd",
        "Which operation of yours does autograd not see? Print answer.grad_fn after each line.",
        lambda *arguments, **named: blockwise(*arguments, **named).detach(),
    ),
)

"""Blockwise attention in steps, and the mistakes that can be made in each.

It gives what attention gives, whose steps it has. What is done block by block is written down as what becomes of the
whole matrix of scores: `m` is the largest score so far, and `M` that of the block alone, for each key.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cs336_kit.examination.table import Table, Ways, ways_to
from cs336_kit.problems.scaled_dot_product_attention import program as attention
from cs336_kit.problems.scaled_dot_product_attention.program import MASKS, normal, shared, shifted, with_scores

INF = math.inf
ONE_BLOCK = 64


def attend_in_blocks(
    ways: Ways, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    """Attention whose steps are done in these ways, with blocks of this size."""
    size = block_size or ONE_BLOCK

    def tile(mask: Tensor | None, S: Tensor) -> Tensor | None:
        allowed = ways["mask"](mask, S)
        return None if allowed is None else ways["tile"](allowed.expand(*allowed.shape[:-2], *S.shape[-2:]), size)

    def softmax(S: Tensor) -> Tensor:
        rows, columns = (torch.arange(length) // size for length in S.shape[-2:])
        seen = ways["walk"](rows.unsqueeze(-1), columns.unsqueeze(0), S, size).expand(S.shape)
        weights = ways["softmax"](S.masked_fill(~seen, -INF), size)
        return weights.where(seen.any(-1, keepdim=True), 0.0)

    def empty(W: Tensor, mask: Tensor) -> Tensor:
        return ways["first"](ways["empty"](W, mask), mask, size)

    return attention.attend({**ways, "mask": tile, "softmax": softmax, "empty": empty}, Q, K, V, mask)


RIGHT: Ways = {
    **attention.RIGHT,
    "tile": lambda mask, size: mask,
    "walk": lambda row, column, S, size: torch.ones_like(S, dtype=torch.bool),
    "softmax": lambda S, size: torch.softmax(S, -1),
    "first": lambda W, mask, size: W,
}


def largest_of_blocks(S: Tensor, size: int) -> Tensor:
    return torch.cat([block.amax(-1, keepdim=True).expand_as(block) for block in S.split(size, -1)], -1)


def powers(S: Tensor, of: Tensor) -> Tensor:
    """The exponentials relative to these; 0 where all scores are -inf."""
    return (S - of.masked_fill(of == -INF, 0.0)).exp()


Relative = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def right(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, last)


def by_own_maximum(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, M)


def by_maximum_then(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, m)


def upside_down(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, m) * powers(last, m)


def by_own_maximum_first(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, M) * powers(m, last)


def by_last_maximum(S: Tensor, M: Tensor, m: Tensor, last: Tensor) -> Tensor:
    return powers(S, M) * powers(M, M[..., -1:])


def joined(values: Relative, total: Relative) -> Callable[[Tensor, int], Tensor]:
    """Weights whose exponentials are relative to different maxima, those of the values and those of the sum."""

    def softmax(S: Tensor, size: int) -> Tensor:
        M = largest_of_blocks(S, size)
        m = M.cummax(-1).values
        divisor = total(S, M, m, m[..., -1:]).sum(-1, keepdim=True)
        lost = (divisor == 0) & (S > -INF).any(-1, keepdim=True)
        return values(S, M, m, m[..., -1:]) / divisor.masked_fill(lost, 1.0)

    return softmax


def in_each_block(S: Tensor, size: int) -> Tensor:
    return torch.cat([torch.softmax(block, -1).nan_to_num(0.0) for block in S.split(size, -1)], -1)


def of_last_block(S: Tensor, size: int) -> Tensor:
    """The exponentials of the last block, and zeros before them."""
    columns = torch.arange(S.shape[-1]) // size
    return powers(S, S.amax(-1, True)) * (columns == columns[-1])


def counted(S: Tensor, times: Tensor) -> Tensor:
    """The softmax where each key is counted so many times."""
    found = powers(S, S.amax(-1, True)) * times
    return found / found.sum(-1, keepdim=True)


def divided_in_every_block(S: Tensor, size: int) -> Tensor:
    m = largest_of_blocks(S, size).cummax(-1).values
    answer = powers(S, m[..., -1:])
    for end in range(size, S.shape[-1] + size, size):
        total = powers(S[..., :end], m[..., :end][..., -1:]).sum(-1, keepdim=True)
        answer = torch.cat((answer[..., :end] / total.where(total != 0, 1.0), answer[..., end:]), -1)
    return answer


def by_maximum_of_rows(S: Tensor, size: int) -> Tensor:
    return torch.cat([shifted(rows, rows.max()) for rows in S.split(size, -2)], -2)


def padded(S: Tensor, size: int) -> Tensor:
    zeros = S.new_zeros(*S.shape[:-1], -S.shape[-1] % min(size, S.shape[-1]))
    return torch.softmax(torch.cat((S, zeros), -1), -1)[..., : S.shape[-1]]


def before_hidden_block(row: Tensor, column: Tensor, S: Tensor, size: int) -> Tensor:
    """Tell the blocks before the first one that is hidden from all its queries."""
    free = (S > -INF).flatten(0, -3).any(0) if S.ndim > 2 else S > -INF
    tiles = (row == row.mT).to(S.dtype) @ free.to(S.dtype) @ (column.mT == column).to(S.dtype)
    return (tiles > 0).cummin(-1).values


SHRINK = "The sums so far are relative to the old maximum. By what factor must they be multiplied when it grows?"
JOIN = ways_to(
    "softmax",
    SHRINK,
    (
        "sum-not-rescaled",
        "When the maximum grows, the weighted values are rescaled and the sum of the exponentials is not.",
        joined(right, by_maximum_then),
    ),
    (
        "values-not-rescaled",
        "When the maximum grows, the sum of the exponentials is rescaled and the weighted values are not.",
        joined(by_maximum_then, right),
    ),
    (
        "nothing-rescaled",
        "When the maximum grows, neither of the two sums is rescaled.",
        joined(by_maximum_then, by_maximum_then),
    ),
    (
        "rescaled-upside-down",
        "You rescale by exp(new maximum - old maximum), which is upside down.",
        joined(upside_down, upside_down),
    ),
    (
        "new-block-not-rescaled",
        "A block is taken relative to its own maximum, even where the maximum so far is larger.",
        joined(by_own_maximum_first, by_own_maximum_first),
    ),
    (
        "maxima-of-blocks",
        "Each block is taken relative to its own maximum, and the sums are added as if all maxima were the same.",
        joined(by_own_maximum, by_own_maximum),
    ),
    (
        "maximum-falls",
        "The maximum may fall from one block to the next, and the factor then overflows.",
        joined(by_last_maximum, by_last_maximum),
    ),
    (
        "averaged",
        "You take the softmax of each block by itself, and average what comes out.",
        lambda S, size: in_each_block(S, size) / math.ceil(S.shape[-1] / size),
    ),
    ("not-divided", "You do not divide by the sum of the exponentials.", lambda S, size: powers(S, S.amax(-1, True))),
    (
        "sum-of-last-block",
        "The sum of the exponentials is that of the last block alone; the weighted values are summed over all.",
        lambda S, size: powers(S, S.amax(-1, True)) / of_last_block(S, size).sum(-1, keepdim=True),
    ),
    (
        "values-of-last-block",
        "The weighted values are those of the last block alone; the exponentials are summed over all.",
        lambda S, size: of_last_block(S, size) / powers(S, S.amax(-1, True)).sum(-1, keepdim=True),
    ),
    (
        "key-twice",
        "Blocks of keys overlap: the first key of a block is in the one before, too.",
        lambda S, size: counted(S, 1 + (torch.arange(S.shape[-1]) % size == 0) * (torch.arange(S.shape[-1]) > 0)),
    ),
    (
        "key-left-out",
        "The last key of every block is left out.",
        lambda S, size: counted(S, torch.arange(1, S.shape[-1] + 1) % size != 0),
    ),
    ("summed", "You take the softmax of each block by itself, and add up what comes out.", in_each_block),
    (
        "divided-in-every-block",
        "You divide by the sum in every block, not once after the last.",
        divided_in_every_block,
    ),
    asks_of={
        "maximum-falls": "The new block has only lower scores: what is the largest score so far, and what is yours?"
    },
)

UNSHIFTED = "The exponential is taken without subtracting the maximum, and overflows."
MAXIMUM = ways_to(
    "softmax",
    "What are the maximum and the sum of a query before the first block, and after each?",
    ("maximum-from-0", "The maximum starts at 0, not at -inf.", lambda S, size: shifted(S, S.amax(-1, True).relu())),
    ("no-maximum", UNSHIFTED, lambda S, size: shifted(S, 0.0)),
    ("no-maximum", UNSHIFTED, lambda S, size: attention.guarded(S)),
    ("maximum-of-rows", "The maximum of a whole block is subtracted, not that of each query.", by_maximum_of_rows),
    (
        "extra-key",
        "The sum holds one more key, whose score is 0.",
        lambda S, size: torch.softmax(torch.cat((S, torch.zeros_like(S[..., :1])), -1), -1)[..., :-1],
    ),
)

PADDED = ways_to(
    "softmax",
    "What stands in the last block, where it is shorter than the others?",
    ("last-block-padded", "The last block is filled up with keys whose score is 0, and they get weight.", padded),
)

FIRST = ways_to(
    "first",
    "What is the maximum of a block in which every score is -inf, and what do you do after it?",
    (
        "hidden-block-zeros",
        "A query from which the first block is hidden gets zeros.",
        lambda W, mask, size: W.where(mask[..., :size].any(-1, keepdim=True), 0.0),
    ),
    (
        "hidden-block-nan",
        "A query from which the first block is hidden, or every block, gets NaN.",
        lambda W, mask, size: W.where(mask[..., :size].any(-1, keepdim=True), math.nan),
    ),
)

WALK = ways_to(
    "walk",
    "For one query, print the columns of every block that you look at. Which are missing?",
    (
        "last-keys-dropped",
        "The last block of keys, which is shorter, is left out.",
        lambda row, column, S, size: column < max(1, S.shape[-1] // size),
    ),
    (
        "last-queries-dropped",
        "The last block of queries, which is shorter, is left out.",
        lambda row, column, S, size: row < max(1, S.shape[-2] // size),
    ),
    (
        "last-blocks-dropped",
        "The last, shorter blocks of both are left out.",
        lambda row, column, S, size: (row < max(1, S.shape[-2] // size)) & (column < max(1, S.shape[-1] // size)),
    ),
    (
        "first-block-only",
        "The loop over the keys ends after one iteration.",
        lambda row, column, S, size: column == 0,
    ),
    (
        "last-block-only",
        "Only the last block of keys counts: those before are overwritten, or multiplied by 0.",
        lambda row, column, S, size: column == column.max(),
    ),
    (
        "own-block-only",
        "A block of queries sees only the keys in the same place.",
        lambda row, column, S, size: row == column,
    ),
    (
        "later-blocks-left-out",
        "Blocks of later keys are left out, as if it were causal.",
        lambda row, column, S, size: row >= column,
    ),
    (
        "keys-counted-by-queries",
        "There are as many blocks of keys as of queries.",
        lambda row, column, S, size: column <= row.max(),
    ),
    (
        "after-hidden-block",
        "After a block of keys that is hidden throughout, all later blocks are left out.",
        before_hidden_block,
    ),
)


def taken_from(mask: Tensor, dim: int, size: int) -> Tensor:
    """The first block of an axis in place of every block."""
    return mask.index_select(dim, torch.arange(mask.shape[dim]) % size)


TILE = ways_to(
    "tile",
    "Rows and columns of the mask are counted from the start of the sequence. Which belong to a block?",
    (
        "mask-of-first-block",
        "The tile of the first block is used for every block.",
        lambda mask, size: taken_from(taken_from(mask, -1, size), -2, size),
    ),
    (
        "mask-of-first-keys",
        "The columns of the first block of keys are used for every block of keys.",
        lambda mask, size: taken_from(mask, -1, size),
    ),
    (
        "mask-of-first-queries",
        "The rows of the first block of queries are used for every block of queries.",
        lambda mask, size: taken_from(mask, -2, size),
    ),
)
# The mistakes of attention; its softmax is done block by block here.
LIKE_ATTENTION = (
    *(*attention.SCALE, *attention.MASK, *attention.HIDE),
    *(*attention.SCORE, *attention.EMPTY, *attention.INPUTS, *attention.LIMIT),
)


def calls() -> dict[str, tuple[Any, ...]]:
    few = torch.tensor([[0.0, -1, 3, 3], [3, 3, 0, -1], [1, 0, 2, 1], [2, 1, 0, 1]])
    far = (torch.arange(4.0) > 0).unsqueeze(-1)
    nothing, first, middle = torch.ones(4, 4).bool(), torch.ones(6, 6).bool(), torch.ones(6, 6).bool()
    nothing[1], first[:, :2], middle[:, 2:4] = False, False, False
    first[4, 1] = True
    depths, n = attention.DEPTHS, len(attention.DEPTHS)
    deep = torch.arange(n).expand(n, n) == 0
    return {
        "In one block": (*normal((2,), 5, 4, 7, 6), None, ONE_BLOCK),
        "With 4 queries and 5 keys in blocks of 2": (*normal((3, 2), 4, 5, 10, 9), None, 2),
        "With 4 queries and 11 keys in blocks of 3": (*normal((2,), 4, 11, 5, 4), None, 3),
        "With 7 queries and 4 keys in blocks of 3": (*normal((2,), 7, 4, 5, 3), None, 3),
        "For two dimensions in blocks of 1": (*normal((), 3, 3, 5, 4), None, 1),
        "Where queries, keys, d_k and d_v are the same number": (*normal((2,), 4, 4, 4, 4), None, 2),
        "Where the heads share one K and V": (*shared(normal((2, 3), 4, 5, 7, 6)), None, 2),
        "For scores around 1,000": (*with_scores(few + 1e3), 2),
        "For scores around -1,000": (*with_scores(few - 1e3), 2),
        "For scores around 0 for one query and around -1,000 for others": (*with_scores(few - 1e3 * far), 2),
        "For scores of 0 and -200 in one query": (*with_scores(few - 200 * far.mT), 2),
        "With a mask for each sequence": (*normal((2,), 4, 4, 5, 4), MASKS, 2),
        "With a mask of shape (batch, 1, keys)": (*normal((4,), 4, 4, 6, 4), MASKS[0].view(4, 1, 4), 2),
        "Where the first block is hidden": (*normal((2,), 6, 6, 5, 4), first, 2),
        "Where a block in the middle is hidden": (*normal((2,), 6, 6, 5, 4), middle, 2),
        "Where one query may attend to nothing": (*normal((2,), 4, 4, 5, 4), nothing, 2),
        "With a mask in one block": (*normal((2,), 4, 4, 5, 4), MASKS, ONE_BLOCK),
        "Where hidden scores are far above the others": (*with_scores(depths * ~deep, deep), 5),
        "Where all scores are far below 0": (*with_scores(-depths.expand(n, n), deep), 5),
    }


CALLS = calls()
# In blocks, every step has the size, too.
CUTS = tuple(
    replace(cut, do=lambda S, size, do=cut.do: do(S)) if cut.step == "softmax" else cut for cut in attention.CUTS
)
TABLE = Table(
    run=attend_in_blocks,
    right=RIGHT,
    changes=(*JOIN, *MAXIMUM, *PADDED, *FIRST, *WALK, *TILE, *LIKE_ATTENTION),
    calls=CALLS,
    basic=frozenset(call for call, (*_, mask, _) in CALLS.items() if mask is None),
    also_right=attention.ALSO_RIGHT,
    basic_words="without a mask",
    digits=(
        "With 4 queries and 5 keys in blocks of 2",
        "Where the heads share one K and V",
    ),
    roundings=attention.ROUNDINGS,
    cuts=CUTS,
)

"""Blockwise attention in steps, and the mistakes that can be made in each.

It gives what attention gives, whose steps it has. What is done block by block is written down as what becomes of the
whole matrix of scores: `m` is the largest score so far, and `M` that of the block alone, for each key.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_staff.authoring.table import Table, Ways, ways_to
from cs336_staff.problems.scaled_dot_product_attention import program as attention
from cs336_staff.problems.scaled_dot_product_attention.program import shifted

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


JOIN = ways_to(
    "softmax",
    ("sum-not-rescaled", joined(right, by_maximum_then)),
    ("values-not-rescaled", joined(by_maximum_then, right)),
    ("nothing-rescaled", joined(by_maximum_then, by_maximum_then)),
    ("rescaled-upside-down", joined(upside_down, upside_down)),
    ("new-block-not-rescaled", joined(by_own_maximum_first, by_own_maximum_first)),
    ("maxima-of-blocks", joined(by_own_maximum, by_own_maximum)),
    ("maximum-falls", joined(by_last_maximum, by_last_maximum)),
    ("averaged", lambda S, size: in_each_block(S, size) / math.ceil(S.shape[-1] / size)),
    ("not-divided", lambda S, size: powers(S, S.amax(-1, True))),
    ("sum-of-last-block", lambda S, size: powers(S, S.amax(-1, True)) / of_last_block(S, size).sum(-1, keepdim=True)),
    (
        "values-of-last-block",
        lambda S, size: of_last_block(S, size) / powers(S, S.amax(-1, True)).sum(-1, keepdim=True),
    ),
    (
        "key-twice",
        lambda S, size: counted(S, 1 + (torch.arange(S.shape[-1]) % size == 0) * (torch.arange(S.shape[-1]) > 0)),
    ),
    ("key-left-out", lambda S, size: counted(S, torch.arange(1, S.shape[-1] + 1) % size != 0)),
    ("summed", in_each_block),
    ("divided-in-every-block", divided_in_every_block),
)

MAXIMUM = ways_to(
    "softmax",
    ("maximum-from-0", lambda S, size: shifted(S, S.amax(-1, True).relu())),
    ("no-maximum", lambda S, size: shifted(S, 0.0)),
    ("no-maximum", lambda S, size: attention.guarded(S)),
    ("maximum-of-rows", by_maximum_of_rows),
    ("extra-key", lambda S, size: torch.softmax(torch.cat((S, torch.zeros_like(S[..., :1])), -1), -1)[..., :-1]),
)

PADDED = ways_to("softmax", ("last-block-padded", padded))

FIRST = ways_to(
    "first",
    ("hidden-block-zeros", lambda W, mask, size: W.where(mask[..., :size].any(-1, keepdim=True), 0.0)),
    ("hidden-block-nan", lambda W, mask, size: W.where(mask[..., :size].any(-1, keepdim=True), math.nan)),
)

WALK = ways_to(
    "walk",
    ("last-keys-dropped", lambda row, column, S, size: column < max(1, S.shape[-1] // size)),
    ("last-queries-dropped", lambda row, column, S, size: row < max(1, S.shape[-2] // size)),
    (
        "last-blocks-dropped",
        lambda row, column, S, size: (row < max(1, S.shape[-2] // size)) & (column < max(1, S.shape[-1] // size)),
    ),
    ("first-block-only", lambda row, column, S, size: column == 0),
    ("last-block-only", lambda row, column, S, size: column == column.max()),
    ("own-block-only", lambda row, column, S, size: row == column),
    ("later-blocks-left-out", lambda row, column, S, size: row >= column),
    ("keys-counted-by-queries", lambda row, column, S, size: column <= row.max()),
    ("after-hidden-block", before_hidden_block),
)


def taken_from(mask: Tensor, dim: int, size: int) -> Tensor:
    """The first block of an axis in place of every block."""
    return mask.index_select(dim, torch.arange(mask.shape[dim]) % size)


TILE = ways_to(
    "tile",
    ("mask-of-first-block", lambda mask, size: taken_from(taken_from(mask, -1, size), -2, size)),
    ("mask-of-first-keys", lambda mask, size: taken_from(mask, -1, size)),
    ("mask-of-first-queries", lambda mask, size: taken_from(mask, -2, size)),
)

# A program with these mistakes, to be caught by the tests: nothing is looked for in it.
TABLE = Table(attend_in_blocks, RIGHT, (*JOIN, *MAXIMUM, *PADDED, *FIRST, *WALK, *TILE), {}, frozenset())

"""Plan which blocks of the score matrix blockwise attention computes, how large they are, and in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from cs336_kit.lab.blockwise.heads import HeadLayout
from cs336_kit.lab.blockwise.masks import Mask, Visibility

# A tile of scores goes through two matrix products and the exponential, so it should fit into the cache that each core
# has for itself. A GPU has thousands of lanes to fill: its tiles are larger.
TILE_BYTES_ON_CPU = 2**20
TILE_BYTES_ELSEWHERE = 2**26

# Queries and keys in a block. The more there are, the nearer the matrix products come to the machine's peak; the fewer,
# the more of what a mask hides is skipped.
WITH_MASK = 256, 256
WITHOUT_MASK = 1024, 256


@dataclass(frozen=True)
class Strip:
    """A block of queries, and the blocks of keys of which these see something.

    Args:
        rows: the queries.
        mask: which may attend to which key; None where all may to all.
        columns: for each block of keys that is not hidden: its number, which keys it has, and how much is visible.
    """

    rows: slice
    mask: Mask | None
    columns: list[tuple[int, slice, Visibility]]

    def tiles(self, device: torch.device) -> Iterator[tuple[int, Bool[Tensor, "#rows #columns"] | None]]:
        """The number of each block, and its part of the mask, made when it is needed; None if all of it is visible."""
        for number, block, visibility in self.columns:
            if self.mask is None or visibility is Visibility.ALL:
                yield number, None
            else:
                yield number, self.mask.tile(self.rows, block, device)


@dataclass(frozen=True)
class Part:
    """The part of each tensor that belongs to some heads.

    Args:
        strips: their work. All have the same mask.
        by_query: tensors (heads, sharing, queries, width), `sharing` being the number of heads of queries for each
            head of keys and values.
        by_key: tensors (heads, keys, width), cut into blocks.
    """

    strips: list[Strip]
    by_query: list[Tensor]
    by_key: list[Sequence[Tensor]]


class BlockPlan:
    """The work of one call of blockwise attention. It does not depend on the number of threads that do it.

    Args:
        Q, K, V, mask: the arguments of `blockwise_attention`, checked.
        batch: the batch-like dimensions that they broadcast to.
        block_size: queries and keys in a block; None chooses from the shapes, the dtype and the device.

    Raises:
        ValueError: `block_size` is not positive.
    """

    def __init__(
        self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask | None, batch: tuple[int, ...], block_size: int | None
    ) -> None:
        if block_size is not None and block_size < 1:
            raise ValueError(f"expected a block_size of at least 1, got {block_size}; None chooses one")
        self.mask_tensors = () if mask is None else mask.tensors
        queries, keys = Q.shape[-2], K.shape[-2]
        self._layout = HeadLayout(K.shape[:-2], V.shape[:-2], () if mask is None else mask.shape[:-2], batch)
        self._queries, self.device = queries, Q.device

        scores = TILE_BYTES_ON_CPU if Q.device.type == "cpu" else TILE_BYTES_ELSEWHERE
        scores //= max(4, Q.element_size())  # half precision is computed in float32
        height, self._width = WITHOUT_MASK if mask is None else WITH_MASK
        # Heads of queries that share their keys lie below each other in a tile: the more there are, the less of each.
        height = min(height, max(16, scores // (self._width * max(1, self._layout.sharing))))
        if block_size is not None:
            height = self._width = block_size
        tile = min(height, queries) * min(self._width, keys) * self._layout.sharing
        self._heads_at_once = max(1, scores // max(1, tile))
        rows, columns = _blocks(queries, height), _blocks(keys, self._width)
        self._matrices = [
            (index, _strips(rows, columns, None if mask is None else mask.matrix(index)))
            for index in self._layout.matrices()
        ]

    def strips(self, by_query: Sequence[Tensor], by_key: Sequence[Tensor]) -> list[tuple[Strip, Part]]:
        """The strips of all heads, the longest first: what is begun last should be short, for all have to wait for it.

        Parts of tensors from `for_queries` and `for_keys` may be written to.
        """
        work = [(strip, part) for part in self._parts(self._heads_at_once, by_query, by_key) for strip in part.strips]
        return sorted(work, key=lambda item: len(item[0].columns), reverse=True)

    def heads(self, by_query: Sequence[Tensor], by_key: Sequence[Tensor]) -> list[Part]:
        """The same work, not divided where heads have it in common; half as many heads, for two tiles at a time."""
        work = self._parts((self._heads_at_once + 1) // 2, by_query, by_key)
        return sorted(work, key=lambda part: sum(len(strip.columns) for strip in part.strips), reverse=True)

    def _parts(self, at_once: int, by_query: Sequence[Tensor], by_key: Sequence[Tensor]) -> Iterator[Part]:
        for index, strips in self._matrices:
            of_index = [[self._layout.part(x, index) for x in xs] for xs in (by_query, by_key)]
            for first in range(0, self._layout.heads, at_once):
                q, k = ([x[first : first + at_once] for x in xs] for xs in of_index)
                yield Part(strips, q, [x[:, 0].split(self._width, dim=1) for x in k])

    def for_queries(self, width: int, dtype: torch.dtype) -> Tensor:
        """An empty tensor (..., queries, width) with the batch-like dimensions of the output."""
        return self._layout.empty((*self._layout.batch, self._queries, width), dtype, self.device)

    def for_keys(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """An empty tensor for the gradient of the keys or values `x`; `sum_to_size` brings it to their shape."""
        return self._layout.empty(self._layout.gradient_shape(x), dtype, self.device)


def _strips(rows: list[slice], columns: list[slice], mask: Mask | None) -> list[Strip]:
    strips = []
    for block in rows:
        seen = [Visibility.ALL if mask is None else mask.visibility(block, c) for c in columns]
        strips.append(Strip(block, mask, [(i, c, v) for i, (c, v) in enumerate(zip(columns, seen, strict=True)) if v]))
    return strips


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]

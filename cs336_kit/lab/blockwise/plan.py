"""Which blocks of the score matrix blockwise attention computes, and how large they are."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from cs336_kit.lab.blockwise.arguments import check_arguments
from cs336_kit.lab.blockwise.heads import HeadLayout
from cs336_kit.lab.blockwise.masks import Mask, Visibility, as_mask

# A tile of scores goes through two matrix products and the exponential; in the cache it gets through faster. On a CPU
# 2 to 8 MiB were about as good where this was measured. A GPU has thousands of lanes to fill: its tiles are larger.
TILE_BYTES_ON_CPU = 4 * 2**20
TILE_BYTES_ELSEWHERE = 64 * 2**20

# The longer a block's sides, the nearer the matrix products come to the machine's peak; the shorter, the more of what
# a mask hides is skipped. With a mask, 256 was the quickest of 128, 256 and 512; without, 512 of 256, 512 and 1024.
SIDE_WITH_MASK = 256
SIDE_WITHOUT_MASK = 512

Tile = Bool[Tensor, "#rows #columns"]


class VisibleBlocks:
    """The blocks of one score matrix in which something is visible, row by row.

    Iterating gives, for each block of queries, its rows and the blocks of keys that these see something of: their
    columns, and a boolean tile, or None where everything is visible. Tiles are made one at a time.
    """

    def __init__(self, mask: Mask | None, rows: list[slice], columns: list[slice], device: torch.device) -> None:
        self._mask = mask
        self._device = device
        self._rows = [(block, [(c, v) for c in columns if (v := self._visibility(block, c))]) for block in rows]

    def __iter__(self) -> Iterator[tuple[slice, Iterator[tuple[slice, Tile | None]]]]:
        for rows, columns in self._rows:
            yield rows, ((block, self._tile(rows, block, visibility)) for block, visibility in columns)

    def _visibility(self, rows: slice, columns: slice) -> Visibility:
        return Visibility.ALL if self._mask is None else self._mask.visibility(rows, columns)

    def _tile(self, rows: slice, columns: slice, visibility: Visibility) -> Tile | None:
        if self._mask is None or visibility is Visibility.ALL:
            return None
        return self._mask.tile(rows, columns, self._device)


class BlockPlan:
    """The order of the work for one call of blockwise attention.

    Args:
        Q, K, V, mask: the arguments of `blockwise_attention`.
        block_size: queries and keys in a block; None chooses from the shapes, the dtype and the device.

    Raises:
        TypeError, ValueError: the arguments do not fit together, or `block_size` is not positive.
    """

    def __init__(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask | Tensor | None, block_size: int | None) -> None:
        if block_size is not None and block_size < 1:
            raise ValueError(f"expected a block_size of at least 1, got {block_size}; None chooses one")
        mask = None if mask is None else as_mask(mask)
        check_arguments(Q, K, V, mask)
        self.mask_tensors = () if mask is None else mask.tensors
        queries, keys = Q.shape[-2], K.shape[-2]
        of_mask = () if mask is None else mask.shape[:-2]
        batch = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2], of_mask)
        self._layout = HeadLayout(K.shape[:-2], V.shape[:-2], of_mask, batch)
        self._queries, self._device = queries, Q.device

        scores = TILE_BYTES_ON_CPU if Q.device.type == "cpu" else TILE_BYTES_ELSEWHERE
        scores //= max(4, Q.element_size())  # half precision is computed in float32
        width = block_size or (SIDE_WITHOUT_MASK if mask is None else SIDE_WITH_MASK)
        # Heads of queries that share their keys lie below each other in a tile: the more there are, the less of each.
        height = block_size or min(width, max(16, scores // (width * max(1, self._layout.sharing))))
        tile = min(height, queries) * min(width, keys) * self._layout.sharing
        self._heads_at_once = max(1, scores // max(1, tile))
        rows, columns = _blocks(queries, height), _blocks(keys, width)
        self._matrices = [
            (index, VisibleBlocks(None if mask is None else mask.matrix(index), rows, columns, Q.device))
            for index in self._layout.matrices()
        ]

    def groups(self, *tensors: Tensor) -> Iterator[tuple[VisibleBlocks, list[Tensor]]]:
        """Heads that are computed together: the visible blocks that they share, and their part of each tensor.

        A part has the shape (heads, sharing, length, width). `sharing` is the number of heads of queries for each
        head of keys and values, and 1 for these. Parts of tensors from `for_queries` and `for_keys` may be written to.
        """
        for index, blocks in self._matrices:
            parts = [self._layout.part(x, index) for x in tensors]
            for first in range(0, self._layout.heads, self._heads_at_once):
                yield blocks, [part[first : first + self._heads_at_once] for part in parts]

    def for_queries(self, width: int, dtype: torch.dtype) -> Tensor:
        """An empty tensor (..., queries, width) with the batch-like dimensions of the output."""
        return self._layout.empty((*self._layout.batch, self._queries, width), dtype, self._device)

    def for_keys(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """An empty tensor for the gradient of the keys or values `x`; `sum_to_size` brings it to their shape."""
        return self._layout.empty(self._layout.gradient_shape(x), dtype, self._device)


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]

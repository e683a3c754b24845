"""What blockwise attention computes, and in which order: blocks of the score matrix, and heads that go together."""

import math
from collections.abc import Iterator
from itertools import product

import torch
from jaxtyping import Bool
from torch import Tensor

from cs336_basics.nn.checks import check_attention_arguments
from cs336_basics.nn.masks import Mask, Visibility, as_mask

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
        self._rows = [
            (block, [(c, v) for c in columns if (v := mask.visibility(block, c) if mask else Visibility.ALL)])
            for block in rows
        ]

    def __iter__(self) -> Iterator[tuple[slice, Iterator[tuple[slice, Tile | None]]]]:
        for rows, columns in self._rows:
            yield rows, self._tiles(rows, columns)

    def _tiles(self, rows: slice, columns: list[tuple[slice, Visibility]]) -> Iterator[tuple[slice, Tile | None]]:
        for block, visibility in columns:
            partial = self._mask is not None and visibility is not Visibility.ALL
            yield block, self._mask.tile(rows, block, self._device) if partial else None


class BlockPlan:
    """The order of the work for one call of blockwise attention.

    The batch-like dimensions are of three kinds. Where the mask differs, the score matrices are taken one by one, for
    each has blocks of its own. Where keys or values differ, they are taken together, as many as fit a tile. The rest
    are queries that share their keys and values (grouped queries): these are put below each other, as more rows of
    one matrix product, and keys and values are never copied for them.

    Args:
        Q, K, V, mask: the arguments of `blockwise_attention`.
        block_size: queries and keys in a block; None chooses from the shapes, the dtype and the device.

    Raises:
        TypeError, ValueError: the arguments do not fit together, or `block_size` is not positive.
    """

    def __init__(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask | Tensor | None, block_size: int | None) -> None:
        check_attention_arguments(Q, K, V, mask if isinstance(mask, Tensor) else None)
        if block_size is not None and block_size < 1:
            raise ValueError(f"expected a block_size of at least 1, got {block_size}; None chooses one")
        queries, keys = Q.shape[-2], K.shape[-2]
        mask = None if mask is None else as_mask(mask)
        mask_shape = () if mask is None else mask.batch_shape
        if mask is not None:
            mask.check(queries, keys, Q.device)
        try:
            self.batch = tuple(torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2], mask_shape))
        except RuntimeError:
            shapes = f"Q {tuple(Q.shape)}, K {tuple(K.shape)}, V {tuple(V.shape)}, mask {(*mask_shape, queries, keys)}"
            raise ValueError(f"expected leading dimensions that broadcast against each other, got {shapes}") from None

        dims = list(range(len(self.batch)))
        masked = [d for d in dims if _varies(mask_shape, d, len(dims))]
        shapes = (K.shape[:-2], V.shape[:-2])
        together = [d for d in dims if d not in masked and any(_varies(shape, d, len(dims)) for shape in shapes)]
        shared = [d for d in dims if d not in masked and d not in together]
        self._together = together
        self._order = [*masked, *together, *shared, len(dims), len(dims) + 1]
        self._queries, self._device = queries, Q.device

        sharing = math.prod(self.batch[d] for d in shared)
        tile = TILE_BYTES_ON_CPU if Q.device.type == "cpu" else TILE_BYTES_ELSEWHERE
        tile //= max(4, Q.element_size())  # half precision is computed in float32
        side = block_size or (SIDE_WITHOUT_MASK if mask is None else SIDE_WITH_MASK)
        # Queries that share their keys fill a tile from many heads, and need fewer from each.
        height = block_size or min(side, max(16, tile // max(1, side * sharing)))
        self._heads_in_a_tile = max(1, tile // max(1, min(height, queries) * min(side, keys) * sharing))
        rows, columns = _blocks(queries, height), _blocks(keys, side)
        self._matrices: list[tuple[tuple[int, ...], VisibleBlocks]] = []
        for index in product(*(range(self.batch[d]) for d in masked)):
            everywhere = [0] * len(dims)
            for d, i in zip(masked, index, strict=True):
                everywhere[d] = i
            matrix = None if mask is None else mask.matrix(tuple(everywhere))
            self._matrices.append((index, VisibleBlocks(matrix, rows, columns, Q.device)))

    def groups(self, *tensors: Tensor) -> Iterator[tuple[VisibleBlocks, list[Tensor]]]:
        """Groups of heads that are computed together: their blocks, and their part of each tensor.

        A part has the shape (heads, sharing, length, width): `sharing` counts the queries' heads that share a head of
        keys and values, and is 1 for keys and values. The parts of tensors made by `empty` may be written to.
        """
        for index, blocks in self._matrices:
            parts = [self._part(x, index) for x in tensors]
            heads = math.prod(self.batch[d] for d in self._together)
            for first in range(0, heads, self._heads_in_a_tile):
                yield blocks, [part[first : first + self._heads_in_a_tile] for part in parts]

    def for_queries(self, width: int, dtype: torch.dtype) -> Tensor:
        """An empty tensor (..., queries, width) with the batch-like dimensions of the result."""
        return self._allocate((*self.batch, self._queries, width), dtype)

    def for_keys(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        """An empty tensor for the gradient of keys or values: one entry for each head that they are distinct for."""
        own = _padded(like, len(self.batch)).shape
        batch = (self.batch[d] if d in self._together else own[d] for d in range(len(self.batch)))
        return self._allocate((*batch, *own[-2:]), dtype)

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        x = torch.empty([shape[d] for d in self._order], dtype=dtype, device=self._device)
        return x.permute([self._order.index(d) for d in range(len(shape))])

    def _part(self, x: Tensor, index: tuple[int, ...]) -> Tensor:
        """The heads of one score matrix, as (heads, sharing, length, width); a view wherever the strides allow it."""
        x = _padded(x, len(self.batch)).permute(self._order)
        x = x[tuple(i if size > 1 else 0 for i, size in zip(index, x.shape, strict=False))]
        together = [self.batch[d] for d in self._together]
        shared = x.shape[len(together) : -2]
        return x.expand(*together, *x.shape[len(together) :]).reshape(
            math.prod(together), math.prod(shared), *x.shape[-2:]
        )


def _padded(x: Tensor, batch_dims: int) -> Tensor:
    """`x` with leading dimensions of size 1, up to `batch_dims` batch-like ones."""
    return x.reshape((1,) * (batch_dims + 2 - x.ndim) + x.shape)


def _varies(shape: tuple[int, ...], dim: int, batch_dims: int) -> bool:
    """Whether a tensor with these batch-like dimensions has more than one entry along `dim` of those it broadcasts to.

    No entry is as good as many: it is not shared either.
    """
    own = dim - batch_dims + len(shape)
    return own >= 0 and shape[own] != 1


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]

"""Heads that are computed together: batch-like dimensions that broadcast, laid out for batched matrix products."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor


class HeadLayout:
    """The batch-like dimensions of one attention, in three kinds.

    Where the mask differs, score matrices are taken one by one, for each has visible blocks of its own. Where keys or
    values differ, heads are taken together in a batched product. What remains are heads of queries that share their
    keys and values (grouped queries): they become more rows of one product, and nothing is copied for them.

    Args:
        keys, values: their batch-like dimensions.
        mask: the batch-like dimensions of the mask.
        batch: what these and the batch-like dimensions of the queries broadcast to.
    """

    def __init__(
        self, keys: tuple[int, ...], values: tuple[int, ...], mask: tuple[int, ...], batch: tuple[int, ...]
    ) -> None:
        keys, values, mask = (_padded(shape, len(batch)) for shape in (keys, values, mask))
        dims = range(len(batch))
        masked = [d for d in dims if mask[d] != 1]
        self._together = [d for d in dims if d not in masked and (keys[d] != 1 or values[d] != 1 or batch[d] == 1)]
        shared = [d for d in dims if d not in masked and d not in self._together]
        self._order = [*masked, *self._together, *shared, len(batch), len(batch) + 1]
        self._masked = masked
        self.batch = batch
        self.heads = math.prod(batch[d] for d in self._together)
        self.sharing = math.prod(batch[d] for d in shared)

    def matrices(self) -> Iterator[tuple[int, ...]]:
        """The index, among all batch-like dimensions, of each score matrix with a mask of its own."""
        return product(*(range(size) if d in self._masked else (0,) for d, size in enumerate(self.batch)))

    def part(self, x: Tensor, index: tuple[int, ...]) -> Tensor:
        """The heads that use the mask at `index`, as (heads, sharing, length, width); sharing is 1 in keys and values.

        It is a view if the strides allow it, and always for tensors from `empty`.
        """
        if len(self._together) == len(self.batch) and x.shape[:-2] == self.batch:  # nothing broadcasts: the quick way
            return x.reshape(self.heads, 1, *x.shape[-2:])
        x = x.view(_padded(x.shape, len(self._order))).permute(self._order)
        x = x[tuple(index[d] if size > 1 else 0 for d, size in zip(self._masked, x.shape, strict=False))]
        shared, matrix = x.shape[len(self._together) : -2], x.shape[-2:]
        x = x.expand(*(self.batch[d] for d in self._together), *shared, *matrix)
        return x.reshape(self.heads, math.prod(shared), *matrix)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of this shape (..., length, width) whose parts are views: what is written to them arrives in it."""
        return torch.empty_permuted(shape, self._order, dtype=dtype, device=device)

    def gradient_shape(self, x: Tensor) -> list[int]:
        """The shape of keys or values, spread over the heads that are taken together."""
        own = _padded(x.shape, len(self._order))
        return [self.batch[d] if d in self._together else size for d, size in enumerate(own)]


def _padded(shape: Sequence[int], dims: int) -> tuple[int, ...]:
    return (1,) * (dims - len(shape)) + tuple(shape)

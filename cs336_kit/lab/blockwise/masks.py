"""Masks that are never held as a matrix: they answer for one block of queries and keys at a time.

    blockwise_attention(Q, K, V, causal & window(512))
    blockwise_attention(Q, K, V, padding(lengths) & document(ids))

Queries and keys are both counted from 0, as the rows and columns of a boolean mask are.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Visibility(IntEnum):
    """The part of a block that may be attended to. In this order, `&` of two masks is the minimum, `|` the maximum."""

    NOTHING = 0
    SOME = 1
    ALL = 2


class Mask(ABC):
    """The keys that each query may attend to. Batch-like dimensions of masks broadcast as those of tensors do."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor that it stands for, (..., queries, keys), with a 1 where any number will do."""
        return (1, 1)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the backward pass reads again. They must be where the queries are, and unchanged by then."""
        return ()

    @abstractmethod
    def matrix(self, index: tuple[int, ...]) -> "Mask":
        """The mask without batch-like dimensions that stands at `index` of these."""

    @abstractmethod
    def visibility(self, rows: slice, columns: slice) -> Visibility:
        """The part of the keys `columns` that the queries `rows` may see. Only for masks without batch-like dimensions.

        SOME is always a right answer. NOTHING and ALL save work, so they are worth finding.
        """

    @abstractmethod
    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "#rows #columns"]:
        """The block as a boolean tensor, True where a query may attend. Only without batch-like dimensions."""

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        """True where both masks are."""
        return _Both(self, as_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        """True where at least one of the masks is."""
        return _Either(self, as_mask(other))

    __rand__ = __and__
    __ror__ = __or__


def window(n: int) -> Mask:
    """A query attends to the keys less than `n` positions away, before and after. `causal & window(n)`: to the last n.

    Raises:
        ValueError: `n` is not positive, so that nothing would be left.
    """
    if n < 1:
        raise ValueError(f"expected a window of at least 1 position, got {n}")
    return _Band(1 - n, n - 1)


def padding(lengths: Int[Tensor, "..."]) -> Mask:
    """Of each sequence, only the first `length` keys are real. For (batch, head) dimensions pass `lengths[:, None]`."""
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"expected whole numbers of keys, got {lengths.dtype}; a boolean mask needs no padding()")
    return _Padding(lengths.to("cpu", copy=True))


def document(ids: Int[Tensor, "... sequence"]) -> Mask:
    """A query attends to the keys of its own document: those with the same id. `causal & document(ids)` packs texts."""
    if ids.ndim == 0:
        raise ValueError("expected ids of the shape (..., sequence), got a single number")
    return _Document(ids)


def as_mask(mask: Mask | Bool[Tensor, "... #queries #keys"]) -> Mask:
    """A boolean tensor as a mask object, and a mask object as it is.

    Raises:
        TypeError: a tensor that is not boolean, or no mask at all.
    """
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        what = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"expected a boolean mask (True = may attend) or one of masks.py, got {what}")
    return _Matrix(mask)


def _entry(x: Tensor, index: tuple[int, ...], own_dims: int) -> Tensor:
    """The entry of `x` at `index` of the batch-like dimensions that it is broadcast to; the last `own_dims` stay."""
    batch = x.shape[: x.ndim - own_dims]
    index = index[len(index) - len(batch) :]
    return x[tuple(i if size > 1 else 0 for i, size in zip(index, batch, strict=True))]


def _positions(block: slice, device: torch.device) -> Int[Tensor, " block"]:
    return torch.arange(block.start, block.stop, device=device)


@dataclass(frozen=True)
class _Band(Mask):
    """True where lowest <= query - key <= highest: a band along the diagonal."""

    lowest: int
    highest: int | float

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return self

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        smallest, largest = rows.start - (columns.stop - 1), (rows.stop - 1) - columns.start
        if self.lowest <= smallest and largest <= self.highest:
            return Visibility.ALL
        return Visibility.SOME if smallest <= self.highest and self.lowest <= largest else Visibility.NOTHING

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "rows columns"]:
        offset = rows.start - columns.start
        tile = torch.ones(rows.stop - rows.start, columns.stop - columns.start, dtype=torch.bool, device=device)
        tile.tril_(offset - self.lowest)
        return tile if self.highest == math.inf else tile.triu_(offset - self.highest)

    def __and__(self, other: Mask | Tensor) -> Mask:
        if isinstance(other, _Band):
            return _Band(max(self.lowest, other.lowest), min(self.highest, other.highest))
        return super().__and__(other)


# A query attends to its own position and those before it.
causal: Mask = _Band(0, math.inf)


@dataclass(frozen=True, eq=False)
class _Padding(Mask):
    lengths: Int[Tensor, "..."]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.lengths.shape, 1, 1)

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return _Padding(_entry(self.lengths, index, 0))

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        length = self.lengths.item()
        if columns.stop <= length:
            return Visibility.ALL
        return Visibility.SOME if columns.start < length else Visibility.NOTHING

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "1 columns"]:
        return (_positions(columns, device) < self.lengths.item())[None]


@dataclass(frozen=True, eq=False)
class _Document(Mask):
    ids: Int[Tensor, "... sequence"]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.ids.shape, self.ids.shape[-1])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.ids,)

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return _Document(_entry(self.ids, index, 1))

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        of_rows, of_columns = self._documents(rows), self._documents(columns)
        if of_rows.isdisjoint(of_columns):
            return Visibility.NOTHING
        return Visibility.ALL if len(of_rows | of_columns) == 1 else Visibility.SOME

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "rows columns"]:
        return self.ids[rows, None] == self.ids[None, columns]

    @cached_property
    def _runs(self) -> tuple[list[int], list[int]]:
        """The id and the start of each run of equal ids."""
        ids, lengths = torch.unique_consecutive(self.ids, return_counts=True)
        return ids.tolist(), (lengths.cumsum(0) - lengths).tolist()

    def _documents(self, block: slice) -> set[int]:
        ids, starts = self._runs
        return set(ids[bisect_right(starts, block.start) - 1 : bisect_left(starts, block.stop)])


class _Matrix(Mask):
    """A boolean tensor. It is looked at anew in every call, so that it may be changed between calls."""

    def __init__(self, values: Bool[Tensor, "... #queries #keys"]) -> None:
        self.values = values
        self._strip: tuple[slice, bytes, bytes] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return _Matrix(_entry(self.values, index, 2))

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        if self._strip is None or self._strip[0] != rows:
            # Minimum and maximum of bytes are a good ten times quicker than `all` and `any`.
            strip = self.tile(rows, slice(None), self.values.device).view(torch.uint8)
            some, every = (f(strip, 0).cpu().numpy().tobytes() for f in (torch.amax, torch.amin))
            self._strip = rows, some, every
        _, some, every = self._strip
        block = columns if len(some) > 1 else slice(None)
        if 0 not in every[block]:
            return Visibility.ALL
        return Visibility.SOME if 1 in some[block] else Visibility.NOTHING

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "#rows #columns"]:
        every_row, every_column = (size == 1 for size in self.values.shape)
        return self.values[slice(None) if every_row else rows, slice(None) if every_column else columns]


@dataclass(frozen=True)
class _Both(Mask):
    left: Mask
    right: Mask

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(torch.broadcast_shapes(self.left.shape, self.right.shape))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.left.tensors, *self.right.tensors)

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return type(self)(self.left.matrix(index), self.right.matrix(index))

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        return min(self.left.visibility(rows, columns), self.right.visibility(rows, columns))

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "#rows #columns"]:
        return self.left.tile(rows, columns, device) & self.right.tile(rows, columns, device)


class _Either(_Both):
    def visibility(self, rows: slice, columns: slice) -> Visibility:
        return max(self.left.visibility(rows, columns), self.right.visibility(rows, columns))

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Bool[Tensor, "#rows #columns"]:
        return self.left.tile(rows, columns, device) | self.right.tile(rows, columns, device)

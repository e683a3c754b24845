"""Requests to a worker, and whether they are what was foreseen."""

from functools import cached_property
from typing import Any

from torch import Tensor

from cs336_staff.sandbox.inside import frames


class Request:
    """A call of an adapter or, with cotangents in the header, its backward pass; or the import, with sources as tail.

    Args:
        header: of the frame, as `cs336_staff/sandbox/inside/serve.py` reads it, without its sequence number.
        tensors: what the header's arguments refer to.
        tail: the bytes that come after them.
    """

    def __init__(self, header: dict[str, Any], tensors: list[Tensor], tail: bytes = b"") -> None:
        self.header, self.tensors, self.tail = header, tensors, tail

    def encode(self) -> "Request":
        """The same, encoded once for all workers; the tensors may change from now on."""
        _ = self._encoded, self._text, self._elements  # cached from now on
        return self

    def frame(self, sequence: int) -> bytes:
        """The frame that asks it as request number `sequence`."""
        return frames.with_sequence(*self._encoded, sequence)

    def is_for(self, header: dict[str, Any], tensors: list[Tensor]) -> bool:
        """Tell whether it has the same frame as a request of these, bit for bit."""
        return (
            len(tensors) == len(self.tensors)
            and repr(header) == self._text
            and all(map(_is_same, tensors, self.tensors, self._elements))
        )

    @cached_property
    def _encoded(self) -> tuple[bytes, bytes]:
        return frames.pack_header(self.header, self.tensors), b"".join(self._elements) + self.tail

    @cached_property
    def _elements(self) -> list[bytes]:
        return [frames.elements(tensor) for tensor in self.tensors]

    @cached_property
    def _text(self) -> str:
        """The header, in which 1, 1.0 and True differ."""
        return repr(self.header)


def _is_same(tensor: Tensor, other: Tensor, elements: bytes) -> bool:
    return (
        tensor.shape == other.shape
        and tensor.dtype == other.dtype
        and tensor.stride() == other.stride()
        and tensor.requires_grad == other.requires_grad
        and frames.elements(tensor) == elements
    )

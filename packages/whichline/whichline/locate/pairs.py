"""Pairs of an adapter and a function of the student's that does its work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from whichline.locate.probe import is_plain
from whichline.rules.pairing import Source, take_part


@dataclass(frozen=True)
class Pair:
    """A function that does the work of an adapter."""

    adapter: str
    sources: Mapping[str, Source]  # by argument of the adapter: where the function has it
    plain: Mapping[str, Any] = field(default_factory=dict)  # the adapter's other arguments, as in the first call
    sizes: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # those that are a size: a tensor, and the axis
    part: int | None = None  # of the function's result, which is what the adapter returns; None for all of it

    def read(self, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read the adapter's arguments from a call of the function; None if they cannot be known.

        Arguments that the function lacks come from the adapter that the test calls.
        """
        found = {name: given.get(name, x) for name, x in self.plain.items()}
        try:
            found |= {name: source.read(parameters) for name, source in self.sources.items()}
            found |= {name: found[tensor].shape[axis] for name, (tensor, axis) in self.sizes.items()}
        except (LookupError, AttributeError):
            return None
        return found if all(is_plain(x) for x in found.values() if isinstance(x, Tensor)) else None

    def see(self, answer: Any) -> Any:
        """Return the tensors in the function's result."""
        return take_part(answer, self.part)

    def expect(self, right: Any) -> dict[str, Tensor]:
        """Return what a test of the function expects; {} if there can be no test."""
        return {"answer": right.detach()} if isinstance(right, Tensor) else {}


def find_sizes(plain: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Find the arguments that are a size of another, a tensor: its name, and the axis, counted from the last."""
    tensors = {name: x for name, x in arguments.items() if isinstance(x, Tensor)}
    sizes = [(x.shape[axis], name, axis) for name, x in tensors.items() for axis in range(-1, -x.ndim - 1, -1)]
    firsts = {size: (name, axis) for size, name, axis in reversed(sizes)}
    return {each: firsts[x] for each, x in plain.items() if type(x) is int and x in firsts}


Pairs = Mapping[tuple[str, str], Sequence[Pair]]  # by the file and the qualified name of the function

"""Pairs of an adapter and a function of the student's that does its work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from whichline.rules.pairing import Source
from whichline.way.probe import is_plain


@dataclass(frozen=True)
class Pair:
    """A function that does what an adapter is for.

    Args:
        adapter: its name.
        sources: where the function has the arguments of the adapter.
        plain: arguments of the adapter that it does not have, as they were when it was paired.
    """

    adapter: str
    sources: Mapping[str, Source]
    plain: Mapping[str, Any] = field(default_factory=dict)

    def read(self, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments of the adapter in a call of the function; None if they cannot be known.

        Args:
            parameters: what the function was called with.
            given: what the adapter was called with inside of which this happens: a size, an angle, has one name.
        """
        found = {name: given.get(name, x) for name, x in self.plain.items()}
        try:
            found |= {name: source.read(parameters) for name, source in self.sources.items()}
        except (LookupError, AttributeError):
            return None
        return found if all(is_plain(x) for x in found.values() if isinstance(x, Tensor)) else None


Pairs = Mapping[tuple[str, str], Sequence[Pair]]  # by the file and the qualified name of the function

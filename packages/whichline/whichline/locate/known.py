"""The known values of one call, checkpoints and inputs, and which of them the value of an expression equals."""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

from torch import Tensor

from whichline.locate.checkpoints import Checkpoints
from whichline.locate.values import CLOSE, Axes, Value, as_value, find_layout, is_equal


@dataclass(frozen=True)
class Match:
    """The checkpoints that the values of an expression equal."""

    names: tuple[str, ...]  # one for each event; or one for all events together
    axes: tuple[Axes, ...]  # their layouts
    together: bool = False  # whether the values of all events, stacked, equal one checkpoint: a loop over an axis


@dataclass
class Known:
    """The checkpoints of one call, and its inputs."""

    steps: Checkpoints
    given: Mapping[str, Any] = field(default_factory=dict)  # the input tensors and numbers, by name
    # which of these a value equals, by the value's key; runs with equal inputs share this
    found: dict[Hashable, "tuple[str, Axes] | None"] = field(default_factory=dict)
    matches: dict[Hashable, Match | None] = field(default_factory=dict)  # by the keys of all values of an expression

    @cached_property
    def values(self) -> dict[str, Value]:
        """The values of the checkpoints and of the inputs, by name."""
        steps = {name: step.value for name, step in self.steps.taken.items()}
        return steps | {name: as_value(x) for name, x in self.given.items()}

    @cached_property
    def _of_size(self) -> dict[int, list[tuple[float, int, str, Value]]]:
        """For each number of elements, the values sorted by their sum: the sum, the order, the name, the value."""
        found: dict[int, list[tuple[float, int, str, Value]]] = {}
        for i, (name, value) in enumerate(self.values.items()):
            found.setdefault(value.tensor.numel(), []).append((value.digest[2], i, name, value))
        return {size: sorted(known, key=lambda each: each[:2]) for size, known in found.items()}

    @cached_property
    def _within(self) -> float:
        return max((value.within for value in self.values.values()), default=CLOSE)

    def trust(self, name: str, x: Tensor) -> None:
        """Add a value that counts as known."""
        value = Value(x.detach().double() if x.is_floating_point() else x)
        alike = (known for each, known in self.values.items() if each.startswith(name))
        if not any(is_equal(value.tensor, known.tensor) for known in alike):
            while name in self.values:
                name += ", again"
            self.values[name] = value
            vars(self).pop("_of_size", None)
            self.found.clear()
            self.matches.clear()

    def has(self, x: Any) -> bool:
        """Tell whether a tensor is known in some layout; values that are no tensors count as known."""
        value = as_value(x) if isinstance(x, Tensor) else None
        return value is None or any(find_layout(value, known) is not None for _, known in self.list_alike(value))

    def list_alike(self, value: Value) -> list[tuple[str, Value]]:
        """List the known values that may hold the same numbers as this one, in order."""
        known, total = self._of_size.get(value.tensor.numel(), []), value.digest[2]
        within = 3 * self._within * (abs(total) + 1e-9)
        first = bisect_left(known, total - within, key=itemgetter(0))
        last = bisect_right(known, total + within, key=itemgetter(0))
        return [(name, each) for _, _, name, each in sorted(known[first:last], key=itemgetter(1))]

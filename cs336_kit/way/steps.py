"""The right program of a problem in named steps, in the words of the handout.

    def follow_softmax(step: Steps, in_features, dim):
        shifted = step("x − max", in_features - in_features.amax(dim, keepdim=True), ask="How large may exp(x) get?")
        ...

A step is what the values of a student's program are held against, and what is put in the place of a wrong one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cs336_kit.way.values import Value, as_value


@dataclass(frozen=True)
class Step:
    """One named value of the right program.

    Args:
        name: as it stands in a sentence: "the scaled scores".
        value: in float64.
        tensor: the same with its graph, to be put in.
        ask: what a tutor would ask of whoever has another value here.
        section: of the handout.
        order: which step it is.
    """

    name: str
    value: Value
    tensor: Any
    ask: str
    section: str
    order: int


@dataclass
class Steps:
    """Takes the steps as the right program computes them."""

    taken: dict[str, Step] = field(default_factory=dict)

    def __call__(self, name: str, value: Any, ask: str = "", section: str | int = "") -> Any:
        """Take a step, and give its value back."""
        kept = value.detach() if isinstance(value, Tensor) else value
        self.taken.setdefault(name, Step(name, as_value(kept), value, ask, str(section), len(self.taken)))
        return value


Follow = Callable[..., Any]  # called with `Steps` and the arguments of an adapter


def take_steps(follow: Follow, arguments: Mapping[str, Any]) -> dict[str, Step]:
    """The steps of a right program on the arguments of a call, in float64."""
    steps = Steps()
    wide = {name: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for name, x in arguments.items()}
    with torch.random.fork_rng(devices=[]):
        follow(steps, **wide)
    return steps.taken

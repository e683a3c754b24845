"""The right program of a problem in named steps, in the words of the handout.

    def follow_softmax(step: Steps, in_features, dim):
        step.section = "1 Standardize"
        shifted = step("x − max", in_features - in_features.amax(dim, keepdim=True), ask="How large may exp(x) get?")
        ...

A step is what the values of a student's program are held against, and what is put in the place of a wrong one. Steps
whose names differ in the number of a block alone are a series: what a loop computes, one in each turn.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from whichline.engine.compare import in_dtype
from whichline.way.values import Value, as_value

BLOCK = re.compile(r"\bblock \d+")


@dataclass(frozen=True)
class Step:
    """One named value of the right program.

    Args:
        name: as it stands in a sentence: "the scaled scores".
        value: in float64.
        tensor: the same with its graph, to be put in.
        ask: what a tutor would ask of whoever has another value here.
        section: of the handout, "1 Standardize".
        order: which step it is.
        series: the name without the numbers of blocks; "" if it has no such numbers.
    """

    name: str
    value: Value
    tensor: Any
    ask: str
    section: str
    order: int
    series: str = ""


@dataclass
class Steps:
    """Takes the steps as the right program computes them; `section` of the handout explains those that name none."""

    section: str = ""
    taken: dict[str, Step] = field(default_factory=dict)

    def __call__(self, name: str, value: Any, ask: str = "", section: str = "") -> Any:
        """Take a step, and give its value back."""
        kept = value.detach() if isinstance(value, Tensor) else value
        series = BLOCK.sub("block", name) if BLOCK.search(name) else ""
        explained = section or self.section
        self.taken.setdefault(name, Step(name, as_value(kept), value, ask, explained, len(self.taken), series))
        return value


Follow = Callable[..., Any]  # called with `Steps` and the arguments of an adapter


def list_series(steps: Mapping[str, Step], series: str) -> list[str]:
    """The steps of a series, in their order."""
    return [name for name, step in steps.items() if series and step.series == series]


def take_steps(follow: Follow, arguments: Mapping[str, Any]) -> dict[str, Step]:
    """The steps of a right program on the arguments of a call, in float64."""
    steps = Steps()
    with torch.random.fork_rng(devices=[]):
        follow(steps, **{name: in_dtype(x, torch.float64) for name, x in arguments.items()})
    return steps.taken

"""Checkpoints: the named values that a reference computes in one call.

The values of a student's program are compared with them, and replaced by them. Checkpoints whose names differ only in
the turn of a loop form a series.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whichline.engine.compare import in_dtype
from whichline.locate.values import Value


@dataclass
class Arguments:
    """The arguments from which checkpoints were computed, and those of the current call, which get the gradients.

    Equal calls share their checkpoints, so these may be different tensors.
    """

    leaves: Sequence[Tensor] = ()  # from which the checkpoints were computed
    given: Sequence[Tensor] = ()  # of the current call
    _reached: dict[int, list[int]] = field(default_factory=dict)  # by the id of a value: indices of leaves

    def graft(self, value: Any) -> Any:
        """Return a value that was computed from the leaves, with a graph that leads to the current arguments."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        if id(value) not in self._reached:
            ends = {id(leaf) for leaf in list_reached(value)}
            self._reached[id(value)] = [i for i, leaf in enumerate(self.leaves) if id(leaf) in ends]
        reached = self._reached[id(value)]
        return _Graft.apply((value,), [self.leaves[i] for i in reached], *(self.given[i] for i in reached))


class _Graft(torch.autograd.Function):
    """A checkpoint whose gradient goes on to the arguments of another call."""

    @staticmethod
    def forward(ctx: Any, step: Sequence[Tensor], leaves: Sequence[Tensor], *given: Tensor) -> Tensor:
        ctx.step, ctx.leaves = step, leaves
        return step[0].detach().clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]  (of one output)
        with torch.enable_grad():
            loss = (ctx.step[0] * gradient).sum()
        return None, None, *torch.autograd.grad(loss, ctx.leaves, retain_graph=True, allow_unused=True)


@dataclass(frozen=True)
class Step:
    """A checkpoint."""

    name: str  # as it stands in a sentence: "the scaled scores"
    value: Value  # in float64
    tensor: Any  # the value itself
    ask: str  # a tutor's question to a student who has another value
    section: str  # of the handout, "1 Standardize"
    order: int  # its number in the call
    series: str  # the name without the turns of loops; "" outside loops
    arguments: Arguments
    turns: tuple[int, ...] = ()  # of each loop around it, the innermost first

    def graft(self) -> Any:
        """Return the value as a replacement, with a graph that leads to the arguments of the current call."""
        return self.arguments.graft(self.tensor)


@dataclass
class Checkpoints:
    """The checkpoints and the output of a reference in one call, computed when they are needed."""

    run: Callable[[dict[str, Step] | None], Any] = lambda taken: None  # returns the output, and adds the checkpoints
    arguments: Arguments = field(default_factory=Arguments)
    is_partial = False  # whether right code may compute much that is no step

    @cached_property
    def taken(self) -> dict[str, Step]:
        """The checkpoints by name."""
        taken: dict[str, Step] = {}
        vars(self)["answer"] = self.run(taken)
        return taken

    @cached_property
    def answer(self) -> Any:
        """The reference's output; without checkpoints this takes a fraction of the time."""
        return self.run(None)

    def has_run(self, adapter: str) -> bool:
        """Tell whether the reference may have run that of another adapter."""
        return True

    def give_answer(self, dtype: torch.dtype) -> Any:
        """Return the reference's output as a student's function would: in a dtype, and as a new tensor."""
        parts = self.answer if isinstance(self.answer, tuple) else (self.answer,)
        grafted = [in_dtype(self.arguments.graft(part), dtype).clone() for part in parts]
        return tuple(grafted) if isinstance(self.answer, tuple) else grafted[0]


def list_series(steps: Mapping[str, Step], series: str) -> list[str]:
    """List the checkpoints of a series in order."""
    return [name for name, step in steps.items() if series and step.series == series]


def list_leaves(arguments: Mapping[str, Any]) -> list[Tensor]:
    """List the arguments whose gradients are asked for."""
    return [x for x in arguments.values() if isinstance(x, Tensor) and x.requires_grad]


def list_reached(value: Any) -> list[Tensor]:
    """List the tensors that the gradient of a value reaches."""
    if not isinstance(value, Tensor) or not value.requires_grad:
        return []
    try:
        seen, todo = set[Any](), [value.grad_fn]
    except RuntimeError:  # a view that was made under no_grad, of a tensor that was changed since
        return []
    if value.is_leaf:
        return [value]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [each for each, _ in node.next_functions]
    return [node.variable for node in seen if hasattr(node, "variable")]

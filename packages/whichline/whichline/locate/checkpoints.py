"""The steps of a right program: its values, each under a name, as a reference computes them in one call.

A step is what the values of a student's program are held against, and what is put in the place of a wrong one. Steps
whose names differ in the turn of a loop alone are a series.
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
    """The arguments that steps with a graph are computed from, and those of the call that is being made.

    The steps of one call serve all calls like it: it is to these arguments that their gradients go.
    """

    leaves: Sequence[Tensor] = ()
    given: Sequence[Tensor] = ()
    _reached: dict[int, list[int]] = field(default_factory=dict)  # by the id of a value, which the steps hold

    def graft(self, value: Any) -> Any:
        """A value that was computed from the leaves, with a graph that leads to what is given."""
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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]  (of one answer)
        with torch.enable_grad():
            loss = (ctx.step[0] * gradient).sum()
        return None, None, *torch.autograd.grad(loss, ctx.leaves, retain_graph=True, allow_unused=True)


@dataclass(frozen=True)
class Step:
    """One named value of the right program."""

    name: str  # as it stands in a sentence: "the scaled scores"
    value: Value  # in float64
    tensor: Any  # the same as it was computed
    ask: str  # what a tutor would ask of whoever has another value here
    section: str  # of the handout, "1 Standardize"
    order: int  # which step it is
    series: str  # the name without the turns of loops; "" of what no loop computes
    arguments: Arguments
    turns: tuple[int, ...] = ()  # how often each loop had turned, from the innermost on

    def graft(self) -> Any:
        """Return the value as a replacement, with a graph that leads to the arguments of the current call."""
        return self.arguments.graft(self.tensor)


@dataclass
class Checkpoints:
    """The right program in one call."""

    run: Callable[[dict[str, Step] | None], Any] = lambda taken: None  # computes the answer, and adds the steps
    arguments: Arguments = field(default_factory=Arguments)
    is_partial = False  # whether right code may compute much that is no step

    @cached_property
    def taken(self) -> dict[str, Step]:
        """The steps by their names, computed when somebody first asks for one."""
        taken: dict[str, Step] = {}
        vars(self)["answer"] = self.run(taken)
        return taken

    @cached_property
    def answer(self) -> Any:
        """What the reference returns; without the steps this takes a fraction of the time."""
        return self.run(None)

    def has_run(self, adapter: str) -> bool:
        """Tell whether the steps of another adapter are among these, as far as they have any in common."""
        return True

    def give_answer(self, dtype: torch.dtype) -> Any:
        """Return the reference's output as a student's function would: in a dtype, and as a new tensor."""
        parts = self.answer if isinstance(self.answer, tuple) else (self.answer,)
        grafted = [in_dtype(self.arguments.graft(part), dtype).clone() for part in parts]
        return tuple(grafted) if isinstance(self.answer, tuple) else grafted[0]


def list_series(steps: Mapping[str, Step], series: str) -> list[str]:
    """The steps of a series, in their order."""
    return [name for name, step in steps.items() if series and step.series == series]


def list_leaves(arguments: Mapping[str, Any]) -> list[Tensor]:
    """List the arguments whose gradients are asked for."""
    return [x for x in arguments.values() if isinstance(x, Tensor) and x.requires_grad]


def list_reached(value: Any) -> list[Tensor]:
    """List the tensors that the gradient of a value reaches."""
    if not isinstance(value, Tensor) or not value.requires_grad:
        return []
    if value.is_leaf:
        return [value]
    seen, todo = set[Any](), [value.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [each for each, _ in node.next_functions]
    return [node.variable for node in seen if hasattr(node, "variable")]

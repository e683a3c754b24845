"""The promises of every function, whatever it computes: inputs left as they were, the same answer again, gradients."""

import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import is_float, listed, near
from cs336_kit.engine.failure import with_type
from cs336_kit.examination.calls import Call, cut_message, quoted
from cs336_kit.examination.experiment import Ask, Finding, Finds, NoAnswerError, examine, random

STEP = 1e-2  # of the difference quotients: in float32 its square and the rounding are both about 1e-4
SLOPE = 2e-2  # a gradient is wrong when it is further from the difference quotient than this, relative to the largest
BY_HAND = "You wrote the backward pass yourself: which derivative does it compute, and of what?"
ROUNDING = 1e-5  # of such a quotient, relative to the answer: float32's, divided by the step


class _Unwritten(TorchDispatchMode):
    """Have torch fill memory that nothing was written to: floating-point numbers with a value, others with zeros."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.name().startswith(("aten::empty", "aten::new_empty")):
            made.fill_(self.value if made.is_floating_point() or made.is_complex() else 0)
        return made


def _is_by_hand(node: Any) -> bool:
    """Say whether some part of a graph has a backward pass that the student wrote."""
    seen, left = set(), [node]
    while left:
        if (node := left.pop()) and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    return any(isinstance(each, torch.autograd.function.BackwardCFunction) for each in seen)


def _or_zero(slope: Tensor | None) -> Tensor:
    return torch.zeros(()) if slope is None else slope


class Contract:
    """The experiments on one call, with float32 tensors.

    Args:
        ask: the student's function.
        call: to make.
        without: the names of arguments that need no gradient.
        in_place: whether the function is known to write into its arguments.
    """

    def __init__(self, ask: Ask, call: Call, without: Collection[str] = (), in_place: bool = False) -> None:
        self.ask, self.arguments, self.shape, self.without = ask, call.arguments, call.shape, without
        self.in_place = in_place
        self.slopes: dict[str, Tensor | None] = {}  # those that autograd gives, by the argument's name

    def inputs_left_alone(self) -> Finds:
        changed = [self.ask.names[i] for i in self.ask.changed(*self.arguments)]
        if not changed:
            return None
        measured = (
            f"After the call {' and '.join(changed)} {'are' if len(changed) > 1 else 'is'} no longer what was passed."
        )
        question = "Which operation works in place: `x -= y`, a method that ends in `_`, or an assignment to `x[...]`?"
        return Finding("in-place", measured, "Your code writes into the tensor that the caller still holds.", question)

    def repeatable(self) -> Finds:
        """Check that the same call gives the same answer."""
        with _Unwritten(0.0):  # memory that was freed may hold NaN
            first = self.ask.tensor(self.shape, *self.arguments)
        with _Unwritten(math.nan):
            again = self.ask.tensor(self.shape, *self.arguments)
        unwritten = again.isnan() & ~first.isnan()
        if unwritten.any():
            measured = f"{int(unwritten.sum())} of the {unwritten.numel()} numbers of your answer depend on memory that"
            question = "Is there a torch.empty of which not every element is set?"
            return Finding("unwritten", f"{measured} was never written.", "", question)
        self.ask.seed += 1
        with _Unwritten(0.0):
            other = self.ask.tensor(self.shape, *self.arguments)
        if near(other, first) and near(again, first):
            return None
        if near(again, first):
            zeros = float((other == 0).double().mean())
            measured = f"Two calls on the same input differ by up to {float((other - first).abs().max()):.3g}"
            if zeros:
                measured += f", and {zeros:.0%} of the numbers are 0"
            means = "Something in your function is random."
            question = "Is dropout on where nothing is being trained? Is there a parameter that keeps its random value?"
            return Finding("random", measured + ".", means, question)
        measured = f"The second call on the same input differs by up to {float((again - first).abs().max()):.3g}."
        means = "Your function remembers something from call to call."
        question = "What survives the call: a cache, a buffer, an attribute?"
        return Finding("remembers", measured, means, question)

    def gradients(self) -> Finds:
        """Check that there are gradients, and that they agree with difference quotients of the student's function."""
        try:
            answer, leaves = self.ask.with_graph(*self.arguments)
        except NoAnswerError as error:
            if self.in_place:  # which is what autograd refuses
                return None
            self.ask(*self.arguments)  # works, or there is nothing to find here
            measured = f"Your function works, but fails when its inputs require gradients: {quoted(error)}."
            return self._gradient("fails", measured, "Which operation can autograd not follow?", error.__cause__)
        if not isinstance(answer, Tensor) or answer.shape != self.shape:
            return None
        if not answer.requires_grad:
            measured = "The inputs require gradients, but your answer can pass none back: its requires_grad is False."
            return self._gradient("detached", measured, "Which of your operations cuts the graph: .detach(), .data, …?")
        direction = random(0, *self.shape)
        try:
            loss = (answer * direction.to(answer.dtype)).sum().real  # given a cotangent, autograd imports sympy: 1.5 s
            slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        except Exception as error:
            measured = f"The call works, and backward() fails: `{cut_message(with_type(error))}`."
            return self._gradient("backward-fails", measured, "Which tensor did you change after it was used?", error)
        names = [name for name, x in zip(self.ask.names, self.arguments, strict=False) if is_float(x)]
        self.slopes = {name: slope for name, slope in zip(names, slopes, strict=True) if name not in self.without}
        if cut := [name for name, slope in self.slopes.items() if slope is None]:
            measured = f"{listed(cut)} {'get' if len(cut) > 1 else 'gets'} no gradient."
            question = "Which operation between there and the answer cuts the graph?"
            if cut == [name for name in names if name.endswith("_weight")]:
                question = (
                    "Does your adapter copy the weights, as .data and load_state_dict do? functional_call does not."
                )
            return self._gradient("cut", measured, question, of=cut)
        noise = ROUNDING * float((answer.detach() * direction).abs().sum())
        question = (
            BY_HAND if _is_by_hand(answer.grad_fn) else "Which part of your formula does autograd treat as constant?"
        )
        return self._compared(direction.double(), noise, question)

    def _compared(self, direction: Tensor, noise: float, question: str) -> Finds:
        for name, slope in self.slopes.items():
            assert slope is not None
            i = self.ask.names.index(name)
            step = random(1, *self.arguments[i].shape)
            predicted = float((slope.double() * step.double()).sum())
            quotient = self._quotient(i, step, direction, STEP)
            allowed = max(SLOPE * max(abs(quotient), abs(predicted), float(slope.double().norm())), noise)
            differs = abs(quotient - predicted) > allowed  # not if it is NaN, which has an experiment of its own
            if differs and abs(self._quotient(i, step, direction, 2 * STEP) - quotient) < allowed:
                measured = (
                    f"When {name} moves in one direction, a weighted sum of your answer changes at a rate of "
                    f"{quotient:.4g}; autograd says {predicted:.4g}."
                )
                return self._gradient("wrong", measured, question, of=[name])
        return None

    def _quotient(self, i: int, step: Tensor, direction: Tensor, size: float) -> float:
        """Divide the answer's change in a direction, when an argument takes steps forward and back, by their size."""
        ends = []
        for sign in (1, -1):
            moved = [*self.arguments]
            moved[i] = moved[i] + sign * size * step
            ends.append(self.ask.tensor(self.shape, *moved))
        return float(((ends[0] - ends[1]) * direction).sum()) / (2 * size)

    def has_slopes_of(self, program: Callable[..., Any], call: Call) -> bool:
        """Tell whether autograd gives for a program what it gave for the student's function."""
        model = Contract(Ask(program, *self.ask.names), call, self.without)
        examine(model, (Contract.gradients,))
        return model.slopes.keys() == self.slopes.keys() and all(
            near(_or_zero(x), _or_zero(y), SLOPE)
            for x, y in zip(model.slopes.values(), self.slopes.values(), strict=True)
        )

    def _gradient(
        self, id: str, measured: str, question: str, error: BaseException | None = None, of: Collection[str] = ()
    ) -> Finding:
        """A finding on the gradients of these arguments, or of all."""

        def touches(case: Case) -> bool:
            named = case.inputs.keys() & of  # an examination may have names of its own
            return bool(named.intersection(case.gradients) if named else case.gradients)

        return Finding(f"gradient-{id}", measured, "", question, touches, error)

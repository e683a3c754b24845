"""The promises of every function, whatever it computes: the dtype of its input, gradients, inputs left as they were."""

from collections.abc import Collection

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name
from cs336_kit.engine.failure import with_type
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, near
from cs336_kit.examination.words import listed

STEP = 1e-2  # of the difference quotients: in float32 its square and the rounding are both about 1e-4
SLOPE = 2e-2  # a gradient is wrong when it is further from the difference quotient than this, relative to the largest
ROUNDING = 1e-5  # of such a quotient, relative to the answer: float32's, divided by the step
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Contract:
    """The experiments on one call, with float32 tensors.

    Args:
        ask: the student's function.
        problem: the first word of the findings' ids.
        section: where the handout lists the promises.
        names: how the arguments are called.
        arguments: of the call.
        shape: of the answer.
        dtypes: that the answer must keep.
    """

    def __init__(
        self,
        ask: Ask,
        problem: str,
        section: str,
        names: tuple[str, ...],
        arguments: tuple,
        shape: tuple[int, ...],
        dtypes: tuple[torch.dtype, ...] = DTYPES,
    ) -> None:
        self.dtypes = dtypes
        self.ask, self.problem, self.section = ask, problem, section
        self.names, self.arguments, self.shape = names, arguments, shape
        self.in_place = False

    def dtype(self) -> Finding | None:
        """Check that the answer has the dtype of the input."""
        wrong = {}
        for dtype in self.dtypes:
            try:
                answer = self.ask(*(x.to(dtype) if _is_float(x) else x for x in self.arguments))
            except NoAnswerError:
                continue
            if isinstance(answer, Tensor) and answer.dtype != dtype:
                wrong[dtype] = answer.dtype
        if not wrong:
            return None
        inputs = {
            came: " and ".join(dtype_name(given) for given in wrong if wrong[given] == came) for came in wrong.values()
        }
        pairs = [f"{dtype_name(came)} for inputs in {given}" for came, given in inputs.items()]
        always = f"-always-{dtype_name(next(iter(wrong.values())))}" if len(wrong) == len(self.dtypes) - 1 else ""
        return Finding(
            f"{self.problem}-dtype{always}",
            f"Your answer is {' and '.join(pairs)}; it should have the dtype of the input.",
            "",
            "Where does your code change the dtype for good?",
            self.section,
            lambda case: case.dtype in wrong,
        )

    def inputs_left_alone(self) -> Finding | None:
        changed = [self.names[i] for i in self.ask.changed(*self.arguments)]
        if not changed:
            return None
        self.in_place = True
        return Finding(
            f"{self.problem}-in-place",
            f"After the call {' and '.join(changed)} {'are' if len(changed) > 1 else 'is'} no longer what was passed.",
            "Your code writes into the tensor that the caller still holds.",
            "Which operation works in place: `x -= y`, a method that ends in `_`, or an assignment to `x[...]`?",
            self.section,
        )

    def repeatable(self) -> Finding | None:
        """Check that the same call gives the same answer."""
        first = self.ask.tensor(self.shape, *self.arguments)
        again = self.ask.tensor(self.shape, *self.arguments)
        self.ask.seed += 1
        other = self.ask.tensor(self.shape, *self.arguments)
        if near(other, first) and near(again, first):
            return None
        if near(again, first):
            zeros = float((other == 0).double().mean())
            measured = f"Two calls on the same input differ by up to {float((other - first).abs().max()):.3g}"
            if zeros:
                measured += f", and {zeros:.0%} of the numbers are 0"
            means, question = "Something in your function is random.", "Is dropout on where nothing is being trained?"
            return Finding(f"{self.problem}-random", measured + ".", means, question, self.section)
        measured = f"The second call on the same input differs by up to {float((again - first).abs().max()):.3g}."
        means, question = "Your function remembers something from call to call.", "What survives the call?"
        return Finding(f"{self.problem}-remembers", measured, means, question, self.section)

    def gradients(self, without: Collection[str] = ()) -> Finding | None:
        """Check that there are gradients, and that they agree with difference quotients of the student's function.

        Args:
            without: the names of arguments that need none.
        """
        try:
            answer, leaves = self.ask.with_graph(*self.arguments)
        except NoAnswerError as error:
            if self.in_place:  # which is what autograd refuses
                return None
            self.ask(*self.arguments)  # works, or there is nothing to find here
            measured = f"Your function works, but fails when its inputs require gradients: `{error}`."
            return self._gradient("fails", measured, "Which operation can autograd not follow?", error.__cause__)
        if not isinstance(answer, Tensor) or answer.shape != self.shape:
            return None
        if not answer.requires_grad:
            measured = "The inputs require gradients, but your answer can pass none back: its requires_grad is False."
            return self._gradient("detached", measured, "Which of your operations cuts the graph: .detach(), .data, …?")
        direction = torch.randn(self.shape, generator=torch.Generator().manual_seed(0))
        try:
            loss = (answer * direction.to(answer.dtype)).sum().real  # given a cotangent, autograd imports sympy: 1.5 s
            slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        except Exception as error:
            measured = f"The call works, and backward() fails: `{with_type(error).splitlines()[0]}`."
            return self._gradient("backward-fails", measured, "Which tensor did you change after it was used?", error)
        names = [name for name, x in zip(self.names, self.arguments, strict=False) if _is_float(x)]
        required = {name: slope for name, slope in zip(names, slopes, strict=True) if name not in without}
        if cut := [name for name, slope in required.items() if slope is None]:
            measured = f"{listed(cut)} {'get' if len(cut) > 1 else 'gets'} no gradient."
            question = "Which operation between there and the answer cuts the graph?"
            if all(name.endswith("_weight") for name in cut):
                question = (
                    "Does your adapter copy the weights, as .data and load_state_dict do? functional_call does not."
                )
            return self._gradient("cut", measured, question)
        noise = ROUNDING * float((answer.detach() * direction).abs().sum())
        return self._compared(required, direction.double(), noise)

    def _compared(self, slopes: dict[str, Tensor], direction: Tensor, noise: float) -> Finding | None:
        for name, slope in slopes.items():
            i = self.names.index(name)
            step = torch.randn(self.arguments[i].shape, generator=torch.Generator().manual_seed(1))
            predicted = float((slope.double() * step.double()).sum())
            quotient = self._quotient(i, step, direction, STEP)
            allowed = max(SLOPE * max(abs(quotient), abs(predicted), float(slope.double().norm())), noise)
            differs = abs(quotient - predicted) > allowed  # not if it is NaN, which has an experiment of its own
            if differs and abs(self._quotient(i, step, direction, 2 * STEP) - quotient) < allowed:
                measured = (
                    f"Along one direction autograd says that the answer changes by {predicted:.4g} for each unit of "
                    f"{name}; a small step in that direction changes it by {quotient:.4g}."
                )
                return self._gradient("wrong", measured, "Which part of your formula does autograd treat as constant?")
        return None

    def _quotient(self, i: int, step: Tensor, direction: Tensor, size: float) -> float:
        """Divide the answer's change in a direction, when an argument takes steps forward and back, by their size."""
        ends = []
        for sign in (1, -1):
            moved = [*self.arguments]
            moved[i] = moved[i] + sign * size * step
            ends.append(self.ask.tensor(self.shape, *moved))
        return float(((ends[0] - ends[1]) * direction).sum()) / (2 * size)

    def _gradient(self, id: str, measured: str, question: str, error: BaseException | None = None) -> Finding:
        id = f"{self.problem}-gradient-{id}"
        return Finding(id, measured, "", question, self.section, has_gradients, error)


def has_gradients(case: Case) -> bool:
    return bool(case.gradients)


def _is_float(x: object) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()

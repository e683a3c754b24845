"""The module that stands in for `adapters` when grading: its functions give what a submission has answered.

What a test can see is the same as when it calls the student's own `adapters`: values, exceptions, gradients (of first
order), and arguments that were modified in place.
"""

import ast
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whichline.engine.failure import StudentRaised
from whichline_grader.sandbox.answer import Answer
from whichline_grader.sandbox.inside.frames import decode, encode


class Respondent(Protocol):
    """Whoever answers the calls of a test.

    Attributes:
        values: what the calls of this test have returned, as it sees it.
    """

    values: list[Any]

    def answer(self, call: str, arguments: tuple[object, ...], grad_enabled: bool) -> Answer:
        """The answer to the next call of the test; this raises what the call has raised, or what stopped it."""
        ...

    def differentiate(self, number: int, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of call number `number`, for each tensor among its arguments that requires one."""
        ...


class Adapters(ModuleType):
    """A module with the functions of a course's `adapters.py`: same names, same signatures, none of the code.

    Attributes:
        respondent: who is asked; set it before the first call.
    """

    respondent: Respondent | None = None

    def __init__(self, source: Path) -> None:
        """Read the names and signatures in `source`, a file of the course's own, without running it."""
        super().__init__("adapters", f"Calls a submission in a sandbox. Signatures from {source.name}.")
        for function in ast.parse(source.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("run_"):
                scope: dict[str, Any] = {"call": self.call}
                exec(_forwarding(function), scope)  # noqa: S102  (the course's own signatures)
                setattr(self, function.name, scope[function.name])

    def call(self, name: str, *arguments: object) -> Any:
        """Call the submission's function `name`.

        Raises:
            StudentRaised: the student's code raised an exception.
            WorkerStopped: there is no usable answer.
        """
        if self.respondent is None:
            raise RuntimeError("expected a respondent; set the module's `respondent` before calling its functions")
        tensors: list[Tensor] = []
        encode(list(arguments), tensors)
        answers: list[Answer] = []
        asking = [tensor for tensor in tensors if tensor.requires_grad]
        call = (name, arguments, torch.is_grad_enabled())
        outputs = _Call.apply(self.respondent, call, answers, *asking)
        _modify(tensors, answers[0].changed, name)
        value = decode(answers[0].value, list(outputs))
        self.respondent.values.append(value)
        return value


def _forwarding(function: ast.FunctionDef) -> str:
    """`def run_x(a, b=None): return call('run_x', a, b)`, for the name and signature of `function`."""
    arguments = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    for argument in arguments:
        argument.annotation = None
    names = ", ".join(argument.arg for argument in arguments)
    return f"def {function.name}({ast.unparse(function.args)}): return call({function.name!r}, {names})"


class _Call(torch.autograd.Function):
    """A call whose gradients were computed in the worker."""

    @staticmethod
    def forward(ctx: Any, respondent: Respondent, call: Any, answers: list[Answer], *_: Tensor) -> tuple[Tensor, ...]:
        answer = respondent.answer(*call)
        answers.append(answer)
        ctx.respondent, ctx.number = respondent, len(respondent.values)
        ctx.set_materialize_grads(False)
        outputs = tuple(output.clone() for output in answer.outputs)  # the test may change them, and run once more
        pairs = zip(outputs, answer.differentiable, strict=True)
        ctx.mark_non_differentiable(*(output for output, differentiable in pairs if not differentiable))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *cotangents: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        return (None,) * 3 + tuple(ctx.respondent.differentiate(ctx.number, cotangents))


def _modify(tensors: list[Tensor], changed: list[Tensor | None], name: str) -> None:
    """Do to the arguments what the call did to its copies of them."""
    for tensor, left in zip(tensors, changed, strict=True):
        if left is None:
            continue
        if (left.shape, left.dtype) != (tensor.shape, tensor.dtype) or 0 in tensor.stride():
            message = f"{name} changed an argument of shape {tuple(tensor.shape)} in place, to {tuple(left.shape)}"
            raise StudentRaised("ValueError", message, ())
        with torch.no_grad():
            tensor.copy_(left)

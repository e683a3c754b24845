"""The module that replaces `adapters` in grading: its functions return what the worker of a submission replied.

A test sees what it would see with the student's own `adapters`: values, exceptions, first derivatives, and arguments
that were modified in place.
"""

import ast
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whichline.engine.errors import StudentRaised
from whichline.engine.syntax import describe_parameters
from whichline_grader.sandbox.inside.frames import decode, encode
from whichline_grader.sandbox.inside.randomness import draw_seeds
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import Reply


class Respondent(Protocol):
    """Answers the calls of a test, or raises what one raised or what stopped it.

    There is a gradient for each tensor among the arguments that requires one.
    """

    values: list[Any]  # what the calls of this test have returned so far

    def reply(self, call: RemoteCall) -> Reply: ...
    def differentiate(self, number: int, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]: ...


class Adapters(ModuleType):
    """A module with the functions of a course's `adapters.py`: same names, same signatures, none of the code."""

    respondent: Respondent | None = None  # answers the calls; set it before the first one

    def __init__(self, source: Path) -> None:
        """Read names and signatures from `source`, the course's own file, without running it."""
        super().__init__("adapters", f"Calls a submission in a sandbox. Signatures from {source.name}.")
        for function in ast.parse(source.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("run_"):
                setattr(self, function.name, _make_forwarder(function, self.call))

    def call(self, name: str, arguments: tuple[object, ...], names: tuple[str, ...] = ()) -> Any:
        """Call the submission's function `name`; the last arguments are passed by these names."""
        if self.respondent is None:
            raise RuntimeError("expected a respondent; set the module's `respondent` before calling its functions")
        tensors: list[Tensor] = []
        encode(list(arguments), tensors)
        replies: list[Reply] = []
        call = RemoteCall(name, arguments, torch.is_grad_enabled(), names=names, seeds=draw_seeds())
        outputs = _Call.apply(self.respondent, call, replies, *(tensor for tensor in tensors if tensor.requires_grad))
        _modify(tensors, replies[0].changed, name)
        value = decode(replies[0].value, list(outputs))
        self.respondent.values.append(value)
        return value


def _make_forwarder(function: ast.FunctionDef, call: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function with this signature that forwards its arguments as they come, by position or by name."""
    scope: dict[str, Any] = {}
    exec(f"def {function.name}({describe_parameters(function)}): ...", scope)  # noqa: S102  (the course's own signatures)
    stated = inspect.signature(scope[function.name])

    @wraps(scope[function.name])
    def forward(*arguments: object, **named: object) -> Any:
        stated.bind(*arguments, **named)  # a call that does not fit the signature is a mistake in the test
        return call(function.name, (*arguments, *named.values()), tuple(named))

    return forward


class _Call(torch.autograd.Function):
    """A call whose gradients were computed in the worker."""

    @staticmethod
    def forward(ctx: Any, asked: Respondent, call: RemoteCall, replies: list[Reply], *_: Tensor) -> tuple[Tensor, ...]:
        reply = asked.reply(call)
        replies.append(reply)
        ctx.respondent, ctx.number = asked, len(asked.values)
        ctx.set_materialize_grads(False)
        outputs = tuple(output.clone() for output in reply.outputs)  # the test may change them, and run once more
        pairs = zip(outputs, reply.differentiable, strict=True)
        ctx.mark_non_differentiable(*(output for output, differentiable in pairs if not differentiable))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *cotangents: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        return (None,) * 3 + tuple(ctx.respondent.differentiate(ctx.number, cotangents))


def _modify(tensors: list[Tensor], changed: list[Tensor | None], name: str) -> None:
    """Change the arguments as the call changed its copies."""
    for tensor, left in zip(tensors, changed, strict=True):
        if left is None:
            continue
        if (left.shape, left.dtype) != (tensor.shape, tensor.dtype) or 0 in tensor.stride():
            message = f"{name} changed an argument of shape {tuple(tensor.shape)} in place, to {tuple(left.shape)}"
            raise StudentRaised("ValueError", message, ())
        with torch.no_grad():
            tensor.copy_(left)

"""The module that stands in for `adapters` when grading: its functions call those of the submission, in a worker.

What a test can see is the same as when it calls the student's own `adapters`: values, exceptions, gradients (of first
order), and arguments that were modified in place.
"""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cs336_kit.engine.failure import StudentRaised
from cs336_staff.sandbox.inside.frames import decode, encode
from cs336_staff.sandbox.replies import Reply
from cs336_staff.sandbox.worker import Worker


class Adapters(ModuleType):
    """A module with the functions of a course's `adapters.py`: same names, same signatures, none of the code.

    Set `worker` before the first call; set another one, and the same functions call another submission.

    Attributes:
        worker: what is called.
        recorded: whether calls have torch record their operators, which doubles the time that they take.
    """

    worker: Worker | None = None
    recorded: bool = True

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
        if self.worker is None:
            raise RuntimeError("expected a worker; set the module's `worker` before calling its functions")
        tensors: list[Tensor] = []
        encoded = [encode(argument, tensors) for argument in arguments]
        header = {
            "call": name,
            "arguments": encoded,
            "grad_enabled": torch.is_grad_enabled(),
            "recorded": self.recorded,
        }
        replies: list[Reply] = []
        outputs = _Call.apply(self.worker, header, tensors, replies, *(t for t in tensors if t.requires_grad))
        _modify(tensors, replies[0].changed, name)
        return decode(replies[0].value, list(outputs))


def _forwarding(function: ast.FunctionDef) -> str:
    """`def run_x(a, b=None): return call('run_x', a, b)`, for the name and signature of `function`."""
    arguments = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    for argument in arguments:
        argument.annotation = None
    names = ", ".join(argument.arg for argument in arguments)
    return f"def {function.name}({ast.unparse(function.args)}): return call({function.name!r}, {names})"


class _Call(torch.autograd.Function):
    """A call in the worker. Backward, the worker calls once more, and sends gradients: it keeps no state for us."""

    @staticmethod
    def forward(
        ctx: Any, worker: Worker, header: dict[str, Any], tensors: list[Tensor], replies: list[Reply], *_: Tensor
    ) -> tuple[Tensor, ...]:
        reply = worker.call(header, tensors)
        replies.append(reply)
        ctx.request = worker, header, tensors
        ctx.set_materialize_grads(False)
        pairs = zip(reply.outputs, reply.differentiable, strict=True)
        ctx.mark_non_differentiable(*(output for output, differentiable in pairs if not differentiable))
        return tuple(reply.outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *cotangents: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        worker, header, tensors = ctx.request
        sent = list(tensors)
        encoded = [encode(cotangent, sent) for cotangent in cotangents]
        return (None,) * 4 + tuple(worker.call(header | {"cotangents": encoded}, sent).gradients)


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

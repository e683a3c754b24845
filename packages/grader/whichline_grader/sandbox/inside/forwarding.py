"""Forward the calls of a submission's functions to the grader: those that solve an earlier problem.

A `Lesson` of whichline/rules/pairing.py finds the function; if it finds none, it is the adapter itself. A function that
the handout names is found by its name. The function then sends each call over the channel, and computes the answer
itself if the grader gives none.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from whichline.rules.pairing import Source, list_parameters, remember
from whichline_grader.sandbox.inside.frames import decode, encode
from whichline_grader.sandbox.inside.importing import is_submitted

Ask = Callable[[dict[str, Any], Sequence[Tensor]], tuple[dict[str, Any], list[Tensor]]]


def find_named(name: str, parameters: Sequence[str]) -> CodeType | None:
    """Find the code of a function of this name whose parameters begin with these."""
    for module in _list_modules():
        code = getattr(inspect.unwrap(vars(module).get(name)), "__code__", None)  # pyright: ignore[reportArgumentType]
        if code and list_parameters(code)[: len(parameters)] == tuple(parameters):
            return code
    return None


def _list_modules() -> list[ModuleType]:
    return [each for each in list(sys.modules.values()) if is_submitted(getattr(each, "__file__", None) or "")]


def forward_calls(code: CodeType, call: str, sources: Mapping[str, Source], ask: Ask) -> bool:
    """Forward the calls of a function to the grader; tell whether the function was found."""
    for maker in {source.maker for source in sources.values() if source.maker}:
        _replace(maker, partial(_record_arguments, maker))
    return _replace(code, lambda function: _forward(function, call, sources, ask))


def _replace(code: CodeType, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Wrap a function in each module and class that holds it; tell whether one does."""
    homes = _list_modules()
    kinds = [kind for home in homes for kind in vars(home).values() if isinstance(kind, type)]
    found = False
    for home in dict.fromkeys((*homes, *kinds)):
        for name, value in list(vars(home).items()):
            method = type(value) if isinstance(value, staticmethod | classmethod) else None
            function = value.__func__ if method else value
            if callable(function) and getattr(inspect.unwrap(function), "__code__", None) is code:
                wrapped = wrap(function)
                setattr(home, name, method(wrapped) if method else wrapped)
                found = True
    return found


def _record_arguments(maker: CodeType, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(function))

    @wraps(function)
    def record(*args: Any, **kwargs: Any) -> Any:
        with suppress(TypeError, LookupError):  # a wrong call raises its own error below
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            remember(maker, bound.arguments)
        return function(*args, **kwargs)

    return record


def _forward(function: Callable[..., Any], call: str, sources: Mapping[str, Source], ask: Ask) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(function))

    @wraps(function)
    def forward(*args: Any, **kwargs: Any) -> Any:
        header: dict[str, Any] = {}
        outputs = tensors = list[Tensor]()
        # Arguments that cannot be sent are not forwarded.
        with suppress(TypeError, ValueError, LookupError, AttributeError):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = {name: encode(source.read(bound.arguments), tensors) for name, source in sources.items()}
            header, outputs = ask({"borrow": call, "arguments": arguments}, tensors)
        if "value" not in header:
            return function(*args, **kwargs)
        value = decode(header["value"], list(_Forwarded.apply(ask, header["number"], outputs, *tensors)))
        return tuple(value) if isinstance(value, list) else value

    return forward


class _Forwarded(torch.autograd.Function):
    """An answer of the grader, which is asked for its gradients, too."""

    @staticmethod
    def forward(ctx: Any, ask: Ask, number: int, outputs: Sequence[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.ask, ctx.number = ask, number
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *cotangents: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        sent: list[Tensor] = []
        given = [encode(each, sent) for each in cotangents]
        header, tensors = ctx.ask({"borrow": ctx.number, "cotangents": given}, sent)
        gradients = iter(decode(header["gradients"], tensors))
        return None, None, None, *(next(gradients) if asks else None for asks in ctx.needs_input_grad[3:])

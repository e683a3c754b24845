"""Functions of a submission whose calls are answered by the other side: those that an earlier problem is about.

A lesson of whichline/rules/pairing.py shows which function that is, or it is the adapter itself. What the handout names
is found by its name. Then it asks over the channel in its own place. What the other side does not answer, it computes
itself.
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
    """The code of a function of this name with these parameters, the first of its own."""
    for module in _list_modules():
        code = getattr(inspect.unwrap(vars(module).get(name)), "__code__", None)  # pyright: ignore[reportArgumentType]
        if code and list_parameters(code)[: len(parameters)] == tuple(parameters):
            return code
    return None


def _list_modules() -> list[ModuleType]:
    """The modules of the submission."""
    return [each for each in list(sys.modules.values()) if is_submitted(getattr(each, "__file__", None) or "")]


def lend(code: CodeType, call: str, sources: Mapping[str, Source], ask: Ask) -> bool:
    """Let the other side answer the calls of a function; tell whether the submission keeps it anywhere."""
    for maker in {source.maker for source in sources.values() if source.maker}:
        _replace(maker, partial(_remembering, maker))
    return _replace(code, lambda function: _stand_in(function, call, sources, ask))


def _replace(code: CodeType, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Put something in the place of a function, wherever the submission keeps it; tell whether it is kept."""
    homes = _list_modules()
    kinds = [kind for home in homes for kind in vars(home).values() if isinstance(kind, type)]
    found = False
    for home in dict.fromkeys((*homes, *kinds)):
        for name, value in list(vars(home).items()):
            method = type(value) if isinstance(value, staticmethod | classmethod) else None
            function = value.__func__ if method else value
            if callable(function) and getattr(inspect.unwrap(function), "__code__", None) is code:
                stand_in = by(function)
                setattr(home, name, method(stand_in) if method else stand_in)
                found = True
    return found


def _remembering(maker: CodeType, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(function))

    @wraps(function)
    def making(*args: Any, **kwargs: Any) -> Any:
        with suppress(TypeError, LookupError):  # what is made wrongly is not made
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            remember(maker, bound.arguments)
        return function(*args, **kwargs)

    return making


def _stand_in(function: Callable[..., Any], call: str, sources: Mapping[str, Source], ask: Ask) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(function))

    @wraps(function)
    def asking(*args: Any, **kwargs: Any) -> Any:
        header: dict[str, Any] = {}
        outputs = tensors = list[Tensor]()
        with suppress(TypeError, ValueError, LookupError, AttributeError):  # what cannot be sent is not asked
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = {name: encode(source.read(bound.arguments), tensors) for name, source in sources.items()}
            header, outputs = ask({"borrow": call, "arguments": arguments}, tensors)
        if "value" not in header:
            return function(*args, **kwargs)
        answers = _Lent.apply(ask, header["number"], outputs, *tensors)
        value = decode(header["value"], list(answers))
        return tuple(value) if isinstance(value, list) else value

    return asking


class _Lent(torch.autograd.Function):
    """An answer of the other side, which is asked for the gradients, too."""

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

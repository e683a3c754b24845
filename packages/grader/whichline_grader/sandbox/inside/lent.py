"""Functions of a submission whose calls are answered by the other side: those that an earlier problem is about.

A lesson, which is a call of that problem's adapter, shows which function it is: the first of the submission's own
functions that receives all tensors of the call, or the adapter itself. Its other arguments are found there, too, or
among those that its `self` was made with. What the handout names is found by its name.
Then it asks over the channel in its own place. What the other side does not answer, it computes itself.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce, wraps
from types import CodeType, FrameType, ModuleType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from whichline_grader.sandbox.inside.frames import decode, encode
from whichline_grader.sandbox.inside.importing import is_submitted

Ask = Callable[[dict[str, Any], Sequence[Tensor]], tuple[dict[str, Any], list[Tensor]]]
SELF, INIT = "self", "__init__"
MADE: dict[tuple[int, CodeType], tuple[ref[Any], Mapping[str, Any]]] = {}  # by an object and what made it: with what


@dataclass(frozen=True)
class Place:
    """Finds an argument of an adapter again: in a parameter of a function, or in an attribute of its first one.

    Or in a parameter of the `maker` of its first one.
    """

    parameter: str
    attribute: str = ""
    transposed: bool = False
    maker: CodeType | None = None

    def read(self, arguments: Mapping[str, Any]) -> Any:
        if self.maker:
            made, given = MADE[id(arguments[SELF]), self.maker]
            if made() is not arguments[SELF]:
                raise LookupError("an object was made that nobody saw")
            return given[self.parameter]
        value = arguments[self.parameter]
        value = reduce(getattr, self.attribute.split("."), value) if self.attribute else value
        return value.mT if self.transposed else value


class Lesson:
    """Finds the function that an adapter calls, while it does.

    Args:
        own: the code of the adapter.
        arguments: of the adapter, by name.
    """

    def __init__(self, own: CodeType | None, arguments: Mapping[str, Any]) -> None:
        self._own, self._arguments = own, arguments
        self._makers: list[CodeType] = []
        self.code: CodeType | None = None
        self.places: dict[str, Place] = {}

    def __enter__(self) -> "Lesson":
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code is not self._own and is_submitted(code.co_filename):
            sys.setprofile(None)
            given = {name: frame.f_locals.get(name) for name in _parameters(code)}
            if code.co_name == INIT:
                self._makers.append(code)
                remember(code, given)
            places = self._find_where_it_was_made(given.get(SELF)) | find_places(self._arguments, given)
            if all(name in places for name, value in self._arguments.items() if isinstance(value, Tensor)):
                self.code, self.places = code, places
            else:
                sys.setprofile(self._look)

    def _find_where_it_was_made(self, made: Any) -> dict[str, Place]:
        """Find plain arguments of the adapter, but no sizes of tensors, among those that an object was made with."""
        tensors = [value for value in self._arguments.values() if isinstance(value, Tensor)]
        sizes = {size for each in tensors for size in each.shape}  # one layer may do the work of three
        plain = {
            name: value
            for name, value in self._arguments.items()
            if not isinstance(value, Tensor) and not (type(value) is int and value in sizes)
        }
        found: dict[str, Place] = {}
        for maker in self._makers:
            if (id(made), maker) in MADE:
                there = find_places(plain, MADE[id(made), maker][1])
                found |= {name: replace(place, maker=maker) for name, place in there.items()}
        return found


def remember(maker: CodeType, given: Mapping[str, Any]) -> None:
    """Remember with what plain arguments an object is made, for as long as it lives."""
    plain = {name: value for name, value in given.items() if type(value) in (bool, int, float, str)}
    with suppress(TypeError, KeyError):  # no reference to it can be had, or it has another name
        MADE[id(given[SELF]), maker] = ref(given[SELF]), plain


def find_places(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Place]:
    """Find arguments among those of another function: tensors also in its `self`; numbers of the same name first."""
    places = {}
    for name, value in wanted.items():
        if isinstance(value, Tensor):
            found = (same for place, tensor in _tensors(there) if (same := _match(place, tensor, value)))
        else:
            alike = {each for each, x in there.items() if type(x) is type(value) and x == value}
            if value is None or isinstance(value, bool):  # others may have it by chance
                alike &= {name}
            found = (Place(each) for each in sorted(alike, key=lambda each: each != name))
        if place := next(found, None):
            places[name] = place
    return places


def _tensors(there: Mapping[str, Any]) -> list[tuple[Place, Tensor]]:
    kept: dict[str, Any] = {}
    if isinstance(module := there.get(SELF), nn.Module) and "_parameters" in vars(module):  # else it is being made
        kept = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    found = [(Place(name), x) for name, x in there.items()] + [(Place(SELF, path), x) for path, x in kept.items()]
    return [(place, x) for place, x in found if isinstance(x, Tensor)]


def _match(place: Place, tensor: Tensor, wanted: Tensor) -> Place | None:
    if tensor.shape == wanted.shape and bool((tensor == wanted).all()):
        return place
    if place.attribute and tensor.ndim > 1 and tensor.mT.shape == wanted.shape and bool((tensor.mT == wanted).all()):
        return Place(place.parameter, place.attribute, transposed=True)
    return None


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def find_named(name: str, parameters: Sequence[str]) -> CodeType | None:
    """The code of a function of this name with these parameters, the first of its own."""
    for module in _list_modules():
        code = getattr(inspect.unwrap(vars(module).get(name)), "__code__", None)  # pyright: ignore[reportArgumentType]
        if code and _parameters(code)[: len(parameters)] == tuple(parameters):
            return code
    return None


def _list_modules() -> list[ModuleType]:
    """The modules of the submission."""
    return [each for each in list(sys.modules.values()) if is_submitted(getattr(each, "__file__", None) or "")]


def lend(code: CodeType, call: str, places: Mapping[str, Place], ask: Ask) -> bool:
    """Let the other side answer the calls of a function; tell whether the submission keeps it anywhere."""
    for maker in {place.maker for place in places.values() if place.maker}:
        _replace(maker, partial(_remembering, maker))
    return _replace(code, lambda function: _stand_in(function, call, places, ask))


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


def _stand_in(function: Callable[..., Any], call: str, places: Mapping[str, Place], ask: Ask) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(function))

    @wraps(function)
    def asking(*args: Any, **kwargs: Any) -> Any:
        header: dict[str, Any] = {}
        outputs = tensors = list[Tensor]()
        with suppress(TypeError, ValueError, LookupError, AttributeError):  # what cannot be sent is not asked
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = {name: encode(place.read(bound.arguments), tensors) for name, place in places.items()}
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

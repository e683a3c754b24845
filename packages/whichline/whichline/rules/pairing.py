"""Finding the function of a student's that does the work of an adapter, and the sources of its arguments.

A lesson, which is a call of the adapter, shows it: the first of the student's own functions that receives all tensors
of the call, and gives the numbers that the adapter gives. Its other arguments are found there, too, or among those that
its `self` was made with.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from torch import Tensor, nn

SELF, INIT = "self", "__init__"
MADE: dict[tuple[int, CodeType], tuple[ref[Any], Mapping[str, Any]]] = {}  # by an object and what made it: with what


@dataclass(frozen=True)
class Source:
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
        is_students: tells by a file's name whether it is.
    """

    def __init__(self, own: CodeType | None, arguments: Mapping[str, Any], is_students: Callable[[str], bool]) -> None:
        self._own, self._arguments, self._is_students = own, arguments, is_students
        self._makers: list[CodeType] = []
        self._running: dict[FrameType, dict[str, Source]] = {}
        self._ended: list[tuple[FrameType, Any]] = []  # with what each gave
        self.code: CodeType | None = None
        self.sources: dict[str, Source] = {}

    def __enter__(self) -> "Lesson":
        self._before = sys.getprofile()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _look(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and frame.f_code is not self._own and self._is_students(frame.f_code.co_filename):
            sys.setprofile(None)
            self._begin(frame)
            sys.setprofile(self._look)
        elif event == "return" and frame in self._running:
            self._ended.append((frame, value))
        elif event == "return" and frame.f_code is self._own:
            sys.setprofile(None)
            self._choose(value)

    def _begin(self, frame: FrameType) -> None:
        code = frame.f_code
        given = {name: frame.f_locals.get(name) for name in list_parameters(code)}
        if code.co_name == INIT:
            self._makers.append(code)
            remember(code, given)
        sources = self._find_where_it_was_made(given.get(SELF)) | find_sources(self._arguments, given)
        if all(name in sources for name, value in self._arguments.items() if isinstance(value, Tensor)):
            self._running[frame] = sources

    def _choose(self, answer: Any) -> None:
        """Choose the first that began of those that gave the answer of the adapter: a helper gives something else."""
        gave = {frame for frame, value in self._ended if _gives(value, answer)}
        if found := next((frame for frame in self._running if frame in gave), None):
            self.code, self.sources = found.f_code, self._running[found]

    def _find_where_it_was_made(self, made: Any) -> dict[str, Source]:
        """Find plain arguments of the adapter, but no sizes of tensors, among those that an object was made with."""
        tensors = [value for value in self._arguments.values() if isinstance(value, Tensor)]
        sizes = {size for each in tensors for size in each.shape}  # one layer may do the work of three
        plain = {
            name: value
            for name, value in self._arguments.items()
            if not isinstance(value, Tensor) and not (type(value) is int and value in sizes)
        }
        found: dict[str, Source] = {}
        for maker in self._makers:
            if (id(made), maker) in MADE:
                there = find_sources(plain, MADE[id(made), maker][1])
                found |= {name: replace(source, maker=maker) for name, source in there.items()}
        return found


def remember(maker: CodeType, given: Mapping[str, Any]) -> None:
    """Remember with what plain arguments an object is made, for as long as it lives."""
    plain = {name: value for name, value in given.items() if type(value) in (bool, int, float, str)}
    with suppress(TypeError, KeyError):  # no reference to it can be had, or it has another name
        MADE[id(given[SELF]), maker] = ref(given[SELF]), plain


def find_sources(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Source]:
    """Find arguments among those of another function: tensors also in its `self`; numbers of the same name first."""
    sources = {}
    for name, value in wanted.items():
        if isinstance(value, Tensor):
            found = (same for source, tensor in _tensors(there) if (same := _match(source, tensor, value)))
        else:
            alike = {each for each, x in there.items() if type(x) is type(value) and x == value}
            if value is None or isinstance(value, bool):  # others may have it by chance
                alike &= {name}
            found = (Source(each) for each in sorted(alike, key=lambda each: each != name))
        if source := next(found, None):
            sources[name] = source
    return sources


def _tensors(there: Mapping[str, Any]) -> list[tuple[Source, Tensor]]:
    kept: dict[str, Any] = {}
    if isinstance(module := there.get(SELF), nn.Module) and "_parameters" in vars(module):  # else it is being made
        kept = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    found = [(Source(name), x) for name, x in there.items()] + [(Source(SELF, path), x) for path, x in kept.items()]
    return [(source, x) for source, x in found if isinstance(x, Tensor)]


def _match(source: Source, tensor: Tensor, wanted: Tensor) -> Source | None:
    if tensor.shape == wanted.shape and bool((tensor == wanted).all()):
        return source
    if source.attribute and tensor.ndim > 1 and tensor.mT.shape == wanted.shape and bool((tensor.mT == wanted).all()):
        return Source(source.parameter, source.attribute, transposed=True)
    return None


def _gives(value: Any, answer: Any) -> bool:
    """Tell whether the numbers of an answer are those of a value, in any dtype and shape."""
    values, answers = (x if isinstance(x, tuple) else (x,) for x in (value, answer))
    if len(values) != len(answers) or not all(isinstance(x, Tensor) for x in (*values, *answers)):
        return False
    pairs = [(one.to(other.dtype), other) for one, other in zip(values, answers, strict=True)]
    return all(one.numel() == other.numel() and one.reshape(-1).equal(other.reshape(-1)) for one, other in pairs)


def list_parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

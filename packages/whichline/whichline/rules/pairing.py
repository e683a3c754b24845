"""Find the student's function that does the work of an adapter, and where it gets the adapter's arguments.

A lesson is a call of the adapter. The function is the first of the student's own that receives all tensors of the call
and returns the numbers that the adapter returns, or raises with it. A helper that gets the tensors first does neither.
The adapter's other arguments are found among its arguments, or among those of the constructor of its `self`.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from torch import Tensor, nn

SELF, INIT = "self", "__init__"
# From the id of an object and its constructor to the object and the constructor's arguments.
CONSTRUCTED: dict[tuple[int, CodeType], tuple[ref[Any], Mapping[str, Any]]] = {}


@dataclass(frozen=True)
class Source:
    """Where a function gets an adapter's argument."""

    parameter: str  # of the function, or of the `maker`
    attribute: str = ""  # of the parameter, which is `self`
    transposed: bool = False  # whether it is the transpose of the adapter's argument
    maker: CodeType | None = None  # the constructor of `self`, if that got the argument

    def read(self, arguments: Mapping[str, Any]) -> Any:
        if self.maker:
            made, given = CONSTRUCTED[id(arguments[SELF]), self.maker]
            if made() is not arguments[SELF]:
                raise LookupError("nobody saw the construction of this object")
            return given[self.parameter]
        value = arguments[self.parameter]
        value = reduce(getattr, self.attribute.split("."), value) if self.attribute else value
        return value.mT if self.transposed else value


class Lesson:
    """Watches a call of an adapter, whose code is `own`, and finds the function that does its work.

    As many `parts` of a result may be what the adapter returns; with 0, the function returns nothing else.
    """

    def __init__(
        self, own: CodeType | None, arguments: Mapping[str, Any], is_students: Callable[[str], bool], parts: int = 0
    ) -> None:
        self._own, self._arguments, self._is_students, self._parts = own, arguments, is_students, parts
        self._makers: list[CodeType] = []
        self._running: dict[FrameType, dict[str, Source]] = {}
        self._returned: list[tuple[FrameType, Any]] = []
        self.code: CodeType | None = None  # of the function; None if there is none
        self.sources: dict[str, Source] = {}  # where it has the adapter's arguments, by their names
        self.part: int | None = None  # the number of the part of its result; None for all of it

    def __enter__(self) -> "Lesson":
        self._before = sys.getprofile()
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _watch(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and frame.f_code is not self._own and self._is_students(frame.f_code.co_filename):
            sys.setprofile(None)
            self._inspect_call(frame)
            sys.setprofile(self._watch)
        elif event == "return" and frame in self._running:
            self._returned.append((frame, value))
        elif event == "return" and frame.f_code is self._own:
            sys.setprofile(None)
            self._choose(value)

    def _inspect_call(self, frame: FrameType) -> None:
        code = frame.f_code
        given = {name: frame.f_locals.get(name) for name in list_parameters(code)}
        if code.co_name == INIT:
            self._makers.append(code)
            remember(code, given)
        sources = self._find_in_constructor(given.get(SELF)) | find_sources(self._arguments, given)
        if all(name in sources for name, value in self._arguments.items() if isinstance(value, Tensor)):
            self._running[frame] = sources

    def _choose(self, answer: Any) -> None:
        """Choose the first call that returned the numbers of the adapter, before that of a decorator's function."""
        for part in (None, *range(self._parts)):
            returned = {frame for frame, value in self._returned if _has_numbers_of(answer, take_part(value, part))}
            fitting = [frame for frame in self._running if frame in returned]
            if found := min(fitting, key=lambda frame: _wraps(frame.f_code), default=None):
                self.code, self.sources, self.part = found.f_code, self._running[found], part
                return

    def _find_in_constructor(self, made: Any) -> dict[str, Source]:
        """Find plain arguments of the adapter, except sizes of tensors, among those of an object's constructor."""
        tensors = [value for value in self._arguments.values() if isinstance(value, Tensor)]
        # These may differ between calls: one layer may do the work of three.
        sizes = {size for each in tensors for size in each.shape}
        others = {name: value for name, value in self._arguments.items() if not isinstance(value, Tensor)}
        plain = {name: value for name, value in others.items() if type(value) is not int or value not in sizes}
        found: dict[str, Source] = {}
        for maker in self._makers:
            if (id(made), maker) in CONSTRUCTED:
                there = find_sources(plain, CONSTRUCTED[id(made), maker][1])
                found |= {name: replace(source, maker=maker) for name, source in there.items()}
        return found


def remember(maker: CodeType, given: Mapping[str, Any]) -> None:
    """Remember the plain arguments of a constructor for as long as its object lives."""
    plain = {name: value for name, value in given.items() if type(value) in (bool, int, float, str)}
    with suppress(TypeError, KeyError):  # it allows no weak reference, or its first parameter has another name
        CONSTRUCTED[id(given[SELF]), maker] = ref(given[SELF]), plain


def find_sources(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Source]:
    """Find arguments among those of another function: tensors also in its `self`, numbers of the same name first."""
    sources = {}
    for name, value in wanted.items():
        if isinstance(value, Tensor):
            found = (same for source, tensor in _list_tensors(there) if (same := _match(source, tensor, value)))
        else:
            alike = {each for each, x in there.items() if type(x) is type(value) and x == value}
            if value is None or isinstance(value, bool):  # other names may have this value by chance
                alike &= {name}
            found = (Source(each) for each in sorted(alike, key=lambda each: each != name))
        if source := next(found, None):
            sources[name] = source
    return sources


def _list_tensors(there: Mapping[str, Any]) -> list[tuple[Source, Tensor]]:
    kept: dict[str, Any] = {}
    module = there.get(SELF)
    if isinstance(module, nn.Module) and "_parameters" in vars(module):  # otherwise it is under construction
        kept = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    found = [(Source(name), x) for name, x in there.items()] + [(Source(SELF, path), x) for path, x in kept.items()]
    return [(source, x) for source, x in found if isinstance(x, Tensor)]


def _match(source: Source, tensor: Tensor, wanted: Tensor) -> Source | None:
    if tensor.shape == wanted.shape and bool((tensor == wanted).all()):
        return source
    if source.attribute and tensor.ndim > 1 and tensor.mT.shape == wanted.shape and bool((tensor.mT == wanted).all()):
        return Source(source.parameter, source.attribute, transposed=True)
    return None


def _has_numbers_of(answer: Any, value: Any) -> bool:
    """Tell whether an output has the numbers of a value, in any dtype and shape; None stands for an exception."""
    if answer is None:
        return value is None
    answers, values = (x if isinstance(x, tuple) else (x,) for x in (answer, value))
    if len(values) != len(answers) or not all(isinstance(x, Tensor) for x in (*values, *answers)):
        return False
    pairs = [(one, other.to(one.dtype)) for one, other in zip(answers, values, strict=True)]
    return all(one.numel() == other.numel() and one.reshape(-1).equal(other.reshape(-1)) for one, other in pairs)


def _wraps(code: CodeType) -> bool:
    """Tell whether a function seems to be a decorator's, which several functions may share."""
    return "<locals>" in code.co_qualname and bool(code.co_flags & (CO_VARARGS | CO_VARKEYWORDS))


def take_part(value: Any, part: int | None) -> Any:
    """Return a part of a tuple or a list, if it has such a part; of anything else, or for None, all of it."""
    return value if part is None or not isinstance(value, tuple | list) else next(iter(value[part : part + 1]), ())


def list_parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

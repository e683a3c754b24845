"""Checks of the annotations in the student's files: jaxtyping's, once for each kind of call.

What a function is called with again and again has the same shapes: checking all of these calls takes longer than the
tests.
"""

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jaxtyping
from beartype import beartype
from torch import Tensor

PLAIN = (int, float, str, type(None))


Around = Callable[[str], AbstractContextManager[Any]]


def check_annotations(files: Iterable[str], around: Around = nullcontext) -> None:
    """Check what the functions of these files and folders are called with and return, if imported from now on.

    Args:
        files: their names.
        around: what is around the import of a file, called with its path.
    """
    others = [each for each in sys.meta_path if not isinstance(each, _Finder)]
    sys.meta_path[:] = [_Finder({Path(name).stem for name in files}, around), *others]  # type: ignore[list-item]  (any object with `find_spec` will do)


@contextmanager
def without_checks() -> Iterator[None]:
    """Call functions whatever their annotations say: checking these takes half the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


class _Finder:
    def __init__(self, packages: Collection[str], around: Around) -> None:
        self.packages = packages
        self.around = around

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.loader.around = self.around
        return spec


class _Loader(SourceFileLoader):
    around: Around

    def source_to_code(self, data: Any, path: Any, *more: Any, **options: Any) -> CodeType:  # type: ignore[override]
        __tracebackhide__ = True  # from pytest, which shows the traceback of a test of the student's own
        try:
            return super().source_to_code(data, path, *more, **options)
        except SyntaxError as error:
            if error.filename is None:  # Python does not say which file has null bytes
                error.filename, error.lineno = path, 1
            raise

    def exec_module(self, module: ModuleType) -> None:
        __tracebackhide__ = True
        with self.around(self.path):
            super().exec_module(module)
        own = [value for value in vars(module).values() if _is_of(module, value)]
        for owner in (module, *(value for value in own if isinstance(value, type))):
            for name, value in [*vars(owner).items()]:
                if isinstance(value, FunctionType) and _is_of(module, value):
                    setattr(owner, name, _checked(value))
                elif isinstance(value, staticmethod | classmethod) and _is_of(module, value.__func__):
                    setattr(owner, name, type(value)(_checked(value.__func__)))


def _is_of(module: ModuleType, value: Any) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which checks a call unless it has checked one like it."""
    seen: set[Any] = set()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        kind = tuple(map(_describe, args)), tuple((name, _describe(value)) for name, value in kwargs.items())
        if kind in seen:
            return function(*args, **kwargs)
        value = _with_checks(function)(*args, **kwargs)
        seen.add(kind)
        return value

    return call


@functools.cache
def _with_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that checks each call, made when there is one."""
    return jaxtyping.jaxtyped(function, typechecker=beartype)


def _describe(value: Any) -> Any:
    """All of an argument that an annotation may speak of."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return type(value), *map(_describe, value)
    return (type(value), value) if isinstance(value, PLAIN) else type(value)

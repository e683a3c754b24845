"""jaxtyping's checks of the annotations in the student's files, once for each kind of call.

A function is called with the same shapes again and again, and to check every call takes longer than the tests.
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
    """Check the arguments and the outputs of the functions in these files and folders, if they are imported later.

    Each file is imported in the context that `around` gives for its path.
    """
    others = [each for each in sys.meta_path if not isinstance(each, _Finder)]
    sys.meta_path[:] = [_Finder({Path(name).stem for name in files}, around), *others]  # type: ignore[list-item]  (any object with `find_spec` will do)


@contextmanager
def without_checks() -> Iterator[None]:
    """Call functions without checks of their annotations, which take half the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


class _Finder:
    def __init__(self, packages: Collection[str], around: Around) -> None:
        self.packages, self.around = packages, around

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
        __tracebackhide__ = True  # pytest shows the traceback of a test that the student wrote
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
                if _is_annotated(module, value):
                    setattr(owner, name, _check_kinds(value))
                elif isinstance(value, staticmethod | classmethod) and _is_annotated(module, value.__func__):
                    setattr(owner, name, type(value)(_check_kinds(value.__func__)))


def _is_of(module: ModuleType, value: Any) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _is_annotated(module: ModuleType, value: Any) -> bool:
    """Tell whether a value is a function of the module with something to check; jaxtyping fails at a lambda."""
    return isinstance(value, FunctionType) and _is_of(module, value) and bool(value.__annotations__)


def _check_kinds(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it checks each kind of call once."""
    seen: set[Any] = set()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        kind = tuple(map(_describe, args)), tuple((name, _describe(value)) for name, value in kwargs.items())
        if kind in seen:
            return function(*args, **kwargs)
        value = _check_all(function)(*args, **kwargs)
        seen.add(kind)
        return value

    return call


@functools.cache
def _check_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it checks every call; this is done at its first call, since it takes time."""
    return jaxtyping.jaxtyped(function, typechecker=beartype)


def _describe(value: Any) -> Any:
    """Everything about an argument that an annotation can restrict."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return type(value), *map(_describe, value)
    return (type(value), value) if isinstance(value, PLAIN) else type(value)

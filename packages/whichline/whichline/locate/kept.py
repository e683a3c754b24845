"""State that code keeps between calls: in its modules, classes and functions, and in the objects that these hold."""

import functools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CACHE = functools._lru_cache_wrapper
MOST = 1000  # parts of one object that are compared
PARTLESS = {int, float, bool, str, bytes, type(None), ModuleType, BuiltinFunctionType, torch.dtype}
WHOLE = 1 << 16  # numbers of a tensor that are compared
Namespaces = Mapping[Any, Mapping[str, Any]]


@dataclass
class Kept:
    """The objects that namespaces hold, at one time."""

    count: int  # of the namespaces
    found: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # by position: an object and its description
    # the objects that have parts, with these; while all parts are the same, nothing has changed
    marks: list[tuple[Any, tuple[list[Any], Any]]] = field(default_factory=list)

    def is_as_it_was(self, namespaces: Namespaces) -> bool:
        """Tell whether nothing has changed; this is much faster than listing everything again."""
        return self.count == len(namespaces) and all(_has_mark(x, *mark) for x, mark in self.marks)


def list_kept(namespaces: Namespaces) -> Kept:
    """List the objects that namespaces hold, with all of their parts."""
    kept = Kept(len(namespaces), marks=[(each, _mark(each)) for each in namespaces.values()])
    found = kept.found
    seen: set[int] = set()
    own = {id(namespace) for namespace in namespaces.values()}
    items = [item for namespace in namespaces.values() for item in list(namespace.items())]
    todo = [(name, value) for name, value in items if not name.startswith("__")]
    names = {namespace.get("__name__") for namespace in namespaces.values()}
    while todo:
        where, x = todo.pop()
        while where in found:
            where += "'"
        found[where] = x, _describe(x)
        if type(x) not in PARTLESS and id(x) not in seen:
            seen.add(id(x))
            if not isinstance(x, type) or x.__module__ in names:
                kept.marks.append((x, _mark(x)))
            parts = list(_list_parts(x, own, names))
            todo += [(f"{where}{at}", part) for at, part in parts[:MOST]]
    return kept


def list_changed(before: Kept, after: Kept) -> list[str]:
    """List the names in a module whose objects have changed."""
    one, other = before.found, after.found
    same = {where for where in one.keys() & other.keys() if _is_same(one[where], other[where])}
    changed = [where for where in {**one, **other} if where not in same]
    return list(dict.fromkeys(where.partition(".")[0].partition("[")[0].strip("'") for where in changed))


def _is_same(before: tuple[Any, Any], after: tuple[Any, Any]) -> bool:
    return before[1] == after[1] and (before[0] is after[0] or isinstance(before[0], int | float | str | bytes | tuple))


def _mark(x: Any) -> tuple[list[Any], Any]:
    """Return the parts of an object, and a description of what may change without them."""
    if isinstance(x, FunctionType):
        cells = [each.cell_contents for each in x.__closure__ or () if _is_full(each)]
        return [*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values(), *cells, *_mark(vars(x))[0]], None
    if isinstance(x, dict):
        return [*x, *x.values()], None
    if isinstance(x, list | tuple | deque | set | frozenset):
        return [*x], None
    if isinstance(x, Tensor | np.ndarray | CACHE):
        return [], _describe(x)
    return _mark({**getattr(x, "__dict__", {})})


def _has_mark(x: Any, parts: list[Any], description: Any) -> bool:
    now, described = _mark(x)
    return len(now) == len(parts) and all(map(is_, now, parts)) and described == description


def _describe(x: Any) -> Any:
    """Describe whatever may change in an object without a change in its parts."""
    if type(x) in (FunctionType, type, ModuleType):
        return None
    if isinstance(x, Tensor):
        version = 0 if x.is_inference() else x._version
        return x.shape, x.data_ptr() if x.layout.__str__() == "torch.strided" else 0, version
    if isinstance(x, np.ndarray):
        return x.shape, x.tobytes() if x.size <= WHOLE else 0
    if isinstance(x, dict | list | set | frozenset | deque):
        return type(x), len(x)
    if isinstance(x, CACHE):
        return x.cache_info().currsize
    return x if isinstance(x, int | float | str | bytes) else type(x)


def _list_parts(x: Any, own: set[int], names: set[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(x, CACHE):
        yield "", x.__wrapped__
    elif isinstance(x, FunctionType):
        if id(x.__globals__) in own:
            yield from ((".default", each) for each in x.__defaults__ or ())
            yield from ((f".{name}", each) for name, each in (x.__kwdefaults__ or {}).items())
            yield from ((".cell", each.cell_contents) for each in x.__closure__ or () if _is_full(each))
        yield from ((f".{name}", each) for name, each in vars(x).items())
    elif isinstance(x, staticmethod | classmethod):
        yield "", x.__func__
    elif isinstance(x, dict):
        yield from ((f"[{key!r}]" if isinstance(key, str | int) else f"[{id(key)}]", each) for key, each in x.items())
    elif isinstance(x, list | tuple | deque):
        yield from ((f"[{i}]", each) for i, each in enumerate(x))
    elif isinstance(x, set | frozenset):
        yield from ((f"[{id(each)}]", None) for each in x)
    elif isinstance(x, type):
        if x.__module__ in names:
            yield from ((f".{name}", each) for name, each in vars(x).items() if not name.startswith("__"))
    elif isinstance(x, nn.Module | SimpleNamespace) or type(x).__module__ in names:
        yield from ((f".{name}", each) for name, each in getattr(x, "__dict__", {}).items())


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False

"""The names in a function of the student's, and which of them may be confused: those of values of one kind."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from whichline.locate.derived import count_read
from whichline.locate.mutants import Mutable, find_outermost
from whichline.locate.named import span_of
from whichline.locate.trace import Trace

MOST_OTHERS = 2  # tensors of other sizes that may take the place of a tensor


class Names:
    """The names in a function, and the kinds of values that they had in a run."""

    def __init__(self, trace: Trace, file: str, mutable: Mutable, made: Mapping[str, str]) -> None:
        inside = [each for each in trace.places if (each.file, find_outermost(each.function)) == (file, mutable.name)]
        assigned = [each for each in ast.walk(mutable.function) if isinstance(each, ast.Assign)]
        texts = [each for each in assigned if inside and isinstance(each.value, ast.Constant)]  # no events of their own
        ran = (each.node for each in inside)
        self.lines = {line for node in (*ran, *texts) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
        self._counted = {span_of(each.node) for each in inside if _is_counted(trace.objects[each][0])}
        self.kinds: dict[str, Any] = {}
        self._at: dict[str, list[int]] = {}
        values = {span_of(each.node): trace.objects[each][0] for each in inside}
        for node, value in mutable.list_named():
            if span_of(value) in values:
                name = ast.unparse(node)
                self.kinds.setdefault(name, _describe_kind(values[span_of(value)]))
                self._at.setdefault(name, []).append(node.lineno)
        given = {each: trace.given[each] for place in inside for each in place.parameters if each in trace.given}
        self.kinds = {each: _describe_kind(x) for each, x in given.items()} | self.kinds
        self._made, self._read = made, count_read(mutable.function)
        self._add_keys(trace, mutable)

    def _add_keys(self, trace: Trace, mutable: Mutable) -> None:
        """Add the other keys of dictionaries in the arguments: for `w["a"]`, `w["b"]`."""
        given = [(re.search(r"\['(.+)'\]$", name), x) for name, x in trace.given.items()]
        keys = {key[1]: _describe_kind(x) for key, x in given if key}
        for node in ast.walk(mutable.function):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in keys:
                for key, kind in keys.items():
                    self.kinds.setdefault(f"{ast.unparse(node.value)}[{key!r}]", kind)

    def is_counted(self, node: ast.AST) -> bool:
        """Tell whether an expression was a number, or a tensor of whole numbers."""
        return isinstance(node, ast.expr) and span_of(node) in self._counted

    def list_alike(self, name: str, line: int) -> Collection[str]:
        """List the names of values of the same kind as a name or a number has, those nearest to a line first."""
        kind = self.kinds.get(name) or (type(ast.literal_eval(name)) if name.lstrip("-").isnumeric() else None)
        alike = [each for each, its in self.kinds.items() if its == kind] if kind else []
        alike += [each for each, its in self._made.items() if its == self._made.get(name)]
        alike = self._sort({each: None for each in alike if each != name}, line)
        if not isinstance(kind, tuple):
            return alike
        others = [each for each, its in self.kinds.items() if its != kind and _is_like(its, kind)]
        return [*alike, *self._sort(others, line)[:MOST_OTHERS]]

    def list_of_kind(self, is_it: Callable[[Any], bool], line: int) -> list[str]:
        """List the names of some kind of values, those nearest to a line first."""
        return self._sort([name for name, kind in self.kinds.items() if is_it(kind)], line)

    def _sort(self, names: Iterable[str], line: int) -> list[str]:
        """Sort names by their distance from a line, after those that nothing reads."""

        def rank(name: str) -> tuple[bool, int]:
            is_read = name in self._read or not name.isidentifier()
            return is_read, min((abs(at - line) for at in self._at.get(name, ())), default=line)

        return sorted(names, key=rank)


def _is_counted(x: Any) -> bool:
    return isinstance(x, int | float) or (isinstance(x, Tensor) and not x.is_floating_point() and x.dtype != torch.bool)


def _is_like(kind: Any, other: Any) -> bool:
    """Tell whether two tensors have the same number of axes and the same dtype."""
    return isinstance(kind, tuple) and (len(kind[1]), kind[2]) == (len(other[1]), other[2])


def _describe_kind(x: Any) -> Any:
    return (Tensor, x.shape, x.dtype) if isinstance(x, Tensor) else type(x)

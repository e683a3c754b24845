"""The tensors in the expression that raised, with their shapes and what the sizes of the case stand for."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, get_args

from torch import Tensor


def operands(trace: TracebackType, adapter: FrameType) -> list[str]:
    """Tell the shapes of what the expression works on, and the names of their axes.

    Args:
        trace: where the student's line was when it raised.
        adapter: the frame of the adapter that the test called: its annotations name the axes.

    Returns:
        One line for the tensors and one for the sizes; nothing where no tensor takes part.
    """
    frame = trace.tb_frame
    shapes = {name: tuple(x.shape) for name, x in _tensors(_expression(trace), frame)}
    if not shapes:
        return []
    names = _axes(adapter)
    sizes = sorted({size for shape in shapes.values() for size in shape} & names.keys())
    there = "here " + ", ".join(f"{name} is {shape}" for name, shape in shapes.items())
    return [there, ", ".join(f"{size} = {' or '.join(names[size])}" for size in sizes)] if sizes else [there]


def _expression(trace: TracebackType) -> ast.AST:
    """The expression of the instruction that raised."""
    code = trace.tb_frame.f_code
    first, last, start, end = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
    if first is None or last is None:
        return ast.Module([], [])
    lines = [
        line.encode() for line in Path(code.co_filename).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    ]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return ast.parse(f"({b' '.join(lines).decode()})", mode="eval")


def _tensors(expression: ast.AST, frame: FrameType) -> Iterator[tuple[str, Tensor]]:
    """The tensors that the expression names, `K` or `self.weight`."""
    nodes = (node for node in ast.walk(expression) if isinstance(node, ast.Name | ast.Attribute))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Name):
            name, value = node.id, frame.f_locals.get(node.id)
        elif isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            owner = frame.f_locals.get(node.value.id)
            value = None if isinstance(owner, Tensor) else getattr(owner, node.attr, None)
        else:
            continue
        if isinstance(value, Tensor):
            yield name, value


def _axes(adapter: FrameType) -> dict[int, list[str]]:
    """For each size in the case, the axes that have it, as the annotations of the adapter name them."""
    names: defaultdict[int, list[str]] = defaultdict(list)
    function = adapter.f_globals.get(adapter.f_code.co_name)
    for argument, annotation in getattr(function, "__annotations__", {}).items():
        value = adapter.f_locals.get(argument)
        for each in (annotation, *get_args(annotation)):
            axes = str(getattr(each, "dim_str", "")).split()
            for axis, size in zip(reversed(axes), reversed(_shape(value)), strict=False):
                if axis == "...":
                    break
                if not axis.startswith("#") and axis not in names[size]:
                    names[size].append(axis)
    return dict(names)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()

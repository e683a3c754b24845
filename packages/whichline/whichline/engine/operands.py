"""The tensors in the expression that raised, with their shapes and what the sizes of the case stand for."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, get_args

from torch import Tensor

TRANSPOSED = ("T", "mT")  # how these lie is what goes wrong with them


def operands(adapter: TracebackType, trace: TracebackType) -> list[str]:
    """Tell the shapes of what the expression works on, and the names of their axes.

    Args:
        adapter: the call of the adapter, whose annotations name the axes.
        trace: where the student's line was when it raised.

    Returns:
        One line for the tensors and one for the sizes; nothing where no tensor takes part.
    """
    tensors = dict(_tensors(_expression(trace), trace.tb_frame, _weights(adapter)))
    if not tensors:
        return []
    differ = len({x.dtype for x in tensors.values() if x.is_floating_point()}) > 1
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    names = _axes(adapter.tb_frame)
    sizes = sorted({size for shape in shapes.values() for size in shape} & names.keys())
    dtypes = {name: f" {x.dtype}".replace("torch.", "") if differ else "" for name, x in tensors.items()}
    there = "here " + ", ".join(f"{name} is {shape}{dtypes[name]}" for name, shape in shapes.items())
    return [there, ", ".join(f"{size} = {' or '.join(names[size])}" for size in sizes)] if sizes else [there]


def position(trace: TracebackType) -> tuple[int | None, int | None, int | None, int | None]:
    """The first and the last line of the instruction that raised, and its first and last column, in bytes."""
    return next(islice(trace.tb_frame.f_code.co_positions(), trace.tb_lasti // 2, None))


def _expression(trace: TracebackType) -> ast.AST:
    """The expression of the instruction that raised."""
    first, last, start, end = position(trace)
    if first is None or last is None:
        return ast.Module([], [])
    path = Path(trace.tb_frame.f_code.co_filename)
    lines = [line.encode() for line in path.read_text(encoding="utf-8").splitlines()[first - 1 : last]]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return ast.parse(f"({b' '.join(lines).decode()})", mode="eval")


def _weights(trace: TracebackType | None) -> dict[tuple[int, str], Tensor]:
    """The weights that `functional_call` had given to modules, which have their own back by now.

    They are named by the module, as its id, and the attribute.
    """
    weights = {}
    while trace:
        if trace.tb_frame.f_code.co_name == "_functional_call":
            module, given = trace.tb_frame.f_locals["module"], trace.tb_frame.f_locals["parameters_and_buffers"]
            for name, x in given.items():
                owner, _, attribute = name.rpartition(".")
                weights[id(module.get_submodule(owner)), attribute] = x
        trace = trace.tb_next
    return weights


def _tensors(
    expression: ast.AST, frame: FrameType, weights: Mapping[tuple[int, str], Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors that the expression names, `K` or `self.weight`."""
    nodes = (node for node in ast.walk(expression) if isinstance(node, ast.Name | ast.Attribute))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Name):
            name, value = node.id, frame.f_locals.get(node.id)
        elif isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            owner = frame.f_locals.get(node.value.id)
            is_view = isinstance(owner, Tensor) and node.attr not in TRANSPOSED
            its = None if is_view else getattr(owner, node.attr, None)
            value = weights.get((id(owner), node.attr), its)
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

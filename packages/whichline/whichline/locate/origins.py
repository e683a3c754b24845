"""Finding the line that gave the operands of a raising expression their shape or dtype."""

import ast
import re
from functools import partial
from itertools import pairwise

import torch
from executing import Source
from torch import Tensor

from whichline.engine.definitions import Definitions
from whichline.engine.exception_report import ExceptionReport
from whichline.engine.messages import OF_DTYPES, SIZES
from whichline.engine.names import get_names, resolve
from whichline.engine.suite import Test
from whichline.locate.named import span_of
from whichline.locate.probe import Expression
from whichline.locate.run import Runner
from whichline.locate.source_location import name_file
from whichline.locate.trace import Trace

MOST = 2  # tensors whose origin is reported
WIDTH = 60  # of an expression in a sentence
LYING = "view size is not compatible"


def describe_origins(runner: Runner, test: Test, report: ExceptionReport) -> list[str]:
    """Say which earlier lines gave the tensors in the raising line their shape or dtype."""
    kind = "dtype" if OF_DTYPES.search(report.text) else ""
    kind = kind or (LYING if LYING in report.text else "shape" if re.search(SIZES, report.text) else "")
    if not kind or not report.node or not report.calls:
        return []
    trace, file = runner.look(test), report.calls[-1].tb_frame.f_code.co_filename
    node = report.node.slice if isinstance(report.node, ast.Subscript) and "indices" in report.text else report.node
    spans = {span_of(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)}
    read = [place for place in trace.places if place.file == file and span_of(place.node) in spans]
    followed = [(place, since) for place in read if (since := _follow(trace, place, kind))]
    odd = [each for each in followed if not _is_as_known(trace, each[0])]
    sentences = [
        _describe(place, since, trace, kind, runner)
        for place, since in (followed if "must match the size" in report.text else odd or followed)
        if (since.file, since.line) != (file, place.line)
    ]
    if short := re.search(r"out of bounds for dimension (\d+) with size (\d+)", report.text):
        axis, size = map(int, short.groups())
        tensors = [(place, x) for place in read if isinstance(x := trace.objects[place][0], Tensor)]
        tables = [place for place, x in tensors if x.shape[axis : axis + 1] == (size,)]
        begins = [since for place in tables[:1] if (since := _follow(trace, place, size))]
        numbers = [each for since in begins for each in trace.list_operands(since) if _is_number(trace, each, size)]
        begins = [*map(trace.find_origin, numbers)] or [each for each in begins if each != followed[0][1]]
        sentences += [_describe(tables[0], since, trace, size, runner) for since in begins[:1]]
    return [*dict.fromkeys(sentences)][:MOST]


def describe_partial(report: ExceptionReport, runner: Runner) -> list[str]:
    """Say to which parameter a partial passes its own first argument, if the line that raised was called through it."""
    definitions = Definitions(report.calls, runner.suite.root, None)
    for outer, inner in pairwise(report.calls):
        node, code = Source.executing(outer).node, inner.tb_frame.f_code
        called = resolve(node.func, get_names(outer)) if isinstance(node, ast.Call) else None
        if not isinstance(called, partial) or not called.args or getattr(called.func, "__code__", None) is not code:
            continue
        calls = [(at, each) for at, _, each in definitions.list_own(ast.Call) if each.args]
        name = getattr(called.func, "__name__", "")
        made = [at for at, each in calls if "partial" in ast.unparse(each.func) and ast.unparse(each.args[0]) == name]
        where = f", made in {made[0]}" if len(made) == 1 else ""
        text = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        return [f"`{text}` is a partial of `{name}`{where}: what it holds goes to `{code.co_varnames[0]}`."]
    return []


def _is_as_known(trace: Trace, place: Expression) -> bool:
    """Tell whether a tensor equals a checkpoint or an input, and has its shape."""
    value, found = trace.objects[place][-1], trace.find(trace.values[place][-1])
    return bool(found) and found[0] in trace.known.values and trace.known.values[found[0]].tensor.shape == value.shape


def _is_number(trace: Trace, place: Expression, number: int) -> bool:
    return trace.is_number(place) and number in trace.objects[place]


def describe_changes(runner: Runner, test: Test, message: str) -> list[str]:
    """Say which line changes in place a tensor of the shape that a gradient needs as it was, if it is one line."""
    if not (shape := re.search(r"inplace operation: \[.*? \[([\d, ]*)\]\]", message)):
        return []
    trace = runner.look(test)
    changing = {(each.file, each.line): each for each in trace.places if each.in_place or _is_in_place(each.node)}
    found = [
        each
        for each in changing.values()
        if any(isinstance(x, Tensor) and str([*x.shape]) == f"[{shape[1]}]" for x in trace.objects[each])
    ]
    if len(found) != 1:
        return []
    return [f"{name_file(found[0].file, runner.suite.root)}:{found[0].line} changes a tensor of this shape in place."]


def _is_in_place(node: ast.AST) -> bool:
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name.endswith("_") and not name.endswith("__")


def _describe(place: Expression, since: Expression, trace: Trace, kind: str | int, runner: Runner) -> str:
    what = _read(trace.objects[place][-1], kind)
    is_here = since.file == place.file
    where = f"line {since.line}" if is_here else f"{name_file(since.file, runner.suite.root)}:{since.line}"
    text = str(since) if len(str(since)) <= WIDTH else f"{str(since)[: WIDTH - 2]} …"
    if isinstance(kind, int):
        return f"The size {kind} comes from {where}, `{text}`."
    what = "not contiguous" if kind == LYING else what
    return f"`{place}` is {what} since {where}, `{text}`.".replace("torch.", "", kind == "dtype")


def _follow(trace: Trace, place: Expression, kind: str | int) -> Expression | None:
    """Find the expression that first had the shape or dtype of a name's last value; None if it came from an input.

    If several operands have it, it is the expression from which all of these were computed.
    """
    value = trace.objects[place][-1]
    if not isinstance(value, Tensor) or (kind == LYING and value.is_contiguous()):
        return None
    wanted = _read(value, kind)
    number = {each: i for i, each in enumerate(trace.places)}
    made, todo, is_indexed = None, {trace.find_origin(place, -1)}, False
    while todo:
        last = max(todo, key=number.__getitem__)
        if isinstance(last.node, ast.Name):
            came_in = any(x is trace.objects[last][0] for x in trace.given.values())
            return None if came_in and not is_indexed and (kind != "shape" or len(todo) == 1) else made
        made = last if len(todo) == 1 else made
        operands = [*trace.list_operands(last), *(_list_shaped(trace, last) if kind == "shape" else ())]
        alike = [each for each in operands if wanted in (_read(x, kind) for x in trace.objects[each])]
        if kind == "shape" and not alike and (indices := _list_indices(trace, last, value.shape)):
            alike, wanted, is_indexed = indices, _read(trace.objects[indices[0]][-1], kind), True
        before = {each for each in map(trace.find_origin, alike) if number[each] < number[last]}
        if not before:
            break
        todo = todo - {last} | before
    return None if made is place else made


def _list_shaped(trace: Trace, place: Expression) -> list[Expression]:
    """List the tensors whose shape an expression reads: `x` in `torch.zeros(x.shape)`."""
    inside = ast.walk(place.node)
    read = {id(each.value) for each in inside if isinstance(each, ast.Attribute) and each.attr == "shape"}
    return [each for each in trace.places if id(each.node) in read]


def _list_indices(trace: Trace, place: Expression, shape: torch.Size) -> list[Expression]:
    """List the tensor that indexes another one, if the shape of the result begins with its shape."""
    operands = trace.list_operands(place) if isinstance(place.node, ast.Subscript) else []
    tensors = [(each, x) for each in operands if isinstance(x := trace.objects[each][-1], Tensor)]
    return [each for each, x in tensors if not x.is_floating_point() and x.ndim > 1 and x.shape == shape[: x.ndim]]


def _read(x: object, kind: str | int) -> object:
    if not isinstance(x, Tensor):
        return None
    if isinstance(kind, int):
        return kind in x.shape
    value = x.is_contiguous() if kind == LYING else getattr(x, kind)
    return tuple(value) if isinstance(value, tuple) else value

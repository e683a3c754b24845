"""Finding the line that gave the operands of a raising expression their shape or dtype."""

import ast
import linecache
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import CodeType

import torch
from executing import Source
from torch import Tensor

from whichline.engine.definitions import Definitions
from whichline.engine.exception_report import ExceptionReport
from whichline.engine.messages import OF_DTYPES, SIZES
from whichline.engine.names import get_names, resolve
from whichline.engine.suite import Test
from whichline.engine.syntax import list_assigned
from whichline.locate.named import span_of
from whichline.locate.probe import Expression
from whichline.locate.run import Runner
from whichline.locate.source_location import name_file
from whichline.locate.times import Event
from whichline.locate.trace import Trace

MOST = 2  # tensors whose origin is reported
WIDTH = 60  # of an expression in a sentence
LYING = "view size is not compatible"
OF_MASKS = re.compile("condition to be a boolean|only supports boolean masks")  # the first argument


def describe_origins(runner: Runner, test: Test, report: ExceptionReport) -> list[str]:
    """Say which earlier lines gave the tensors in the raising line their shape or dtype."""
    kind = "dtype" if OF_DTYPES.search(report.text) else ""
    kind = kind or (LYING if LYING in report.text else "shape" if re.search(SIZES, report.text) else "")
    if check := _find_check(report):
        kind = next((each for each in ("dtype", "shape") if each in ast.unparse(check)), "")
    if not kind or not (check or report.node) or not report.calls:
        return []
    trace, code = runner.look(test), report.calls[-1].tb_frame.f_code
    node, file = check or _narrow(report.node, report.text), code.co_filename
    named = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    spans, texts, names = set(map(span_of, named)), set(map(ast.unparse, named)), get_names(report.calls[-1])
    here = [place for place in trace.places if (place.file, place.function) == (file, code.co_qualname)]
    read = [place for place in here if span_of(place.node) in spans]
    read = read or [place for place in here if str(place) in texts]  # an index on the left of `=` is not followed
    read = [place for place in read if isinstance(resolve(place.node, names), Tensor)]  # and no list of tensors
    followed = [(place, since) for place in read if (since := _follow(trace, place, kind))]
    odd = [each for each in followed if not _is_as_known(trace, each[0])]
    told = followed if "must match the size" in report.text else odd or followed
    elsewhere = [(place, since) for place, since in told if (since.file, since.line) != (file, place.line)]
    held = [place for place in here if isinstance(trace.objects[place][-1], Tensor)]
    made = [] if read or kind == LYING else _find_assigned(held, code, texts)
    sentences = [_describe(place, since, trace, kind, runner) for place, since in (*elsewhere, *made)]
    if short := re.search(r"out of bounds for dimension (\d+) with size (\d+)", report.text):
        axis, size = map(int, short.groups())
        tensors = [(place, x) for place in read if isinstance(x := trace.objects[place][0], Tensor)]
        tables = [place for place, x in tensors if x.shape[axis : axis + 1] == (size,)]
        begins = [since for place in tables[:1] if (since := _follow(trace, place, size))]
        operands = [each for since in begins for each in trace.list_operands(since)]
        numbers = [each for each in operands if trace.is_number(each) and size in trace.objects[each]]
        begins = [*map(trace.find_origin, numbers)] or [each for each in begins if each != followed[0][1]]
        sentences += [_describe(tables[0], since, trace, size, runner) for since in begins[:1]]
    return [*dict.fromkeys(sentences)][:MOST]


def _find_assigned(
    here: Sequence[Expression], code: CodeType, names: Collection[str]
) -> list[tuple[Expression, Expression]]:
    """Find what is assigned to names that are not read before: each as its name, and as the call that is assigned."""
    values = {name: lines[0].value for name in names if len(lines := list_assigned(code, name)) == 1}
    spans = {span_of(value): name for name, value in values.items() if isinstance(value, ast.Call)}
    made = [place for place in here if span_of(place.node) in spans]
    return [(replace(place, text=spans[span_of(place.node)]), place) for place in made]


def _narrow(node: ast.AST | None, message: str) -> ast.AST:
    """Find the part of an expression that a message is about: an index, or a condition."""
    if isinstance(node, ast.Subscript) and "indices" in message:
        return node.slice
    if isinstance(node, ast.Call) and node.args and OF_MASKS.search(message):
        return node.args[0]
    return node or ast.Pass()


def _find_check(report: ExceptionReport) -> ast.expr | None:
    """Find the condition under which a line of the student's own raises."""
    for each in Source.executing(report.calls[-1]).statements if report.calls else ():
        if isinstance(each, ast.Assert):
            return each.test
        check = getattr(each, "parent", None)  # executing has put it there
        if isinstance(each, ast.Raise) and isinstance(check, ast.If) and each in check.body:
            return check.test
    return None


def describe_index(report: ExceptionReport) -> list[str]:
    """Say which line gives a name the number that is no index, or of which it is made, and where that comes from."""
    wrong = re.search(r"index (-?\d+) is out of bounds", report.text)
    if not wrong or not isinstance(report.node, ast.Subscript):
        return []
    frame = report.calls[-1].tb_frame
    names = {each.id for each in ast.walk(report.node.slice) if isinstance(each, ast.Name)}
    values = {each: x for each in sorted(names) if isinstance(x := frame.f_locals.get(each), int)}
    found = [each for each, x in values.items() if x == int(wrong[1])] or [*values]  # of `2 * i`, `i`
    sentences: list[str] = []
    while len(found) == 1 and len(sentences) < MOST and len(lines := list_assigned(frame.f_code, found[0])) == 1:
        text = linecache.getline(frame.f_code.co_filename, lines[0].line).strip().rstrip(":")
        since = "since" if lines[0].value else "in"  # of a loop
        sentences.append(f"`{found[0]}` is {frame.f_locals[found[0]]} {since} line {lines[0].line}, `{text}`.")
        inner = {each.id for each in ast.walk(lines[0].value or ast.Pass()) if isinstance(each, ast.Name)} - {found[0]}
        found = [each for each in inner if isinstance(frame.f_locals.get(each), int)]
    return sentences


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


def describe_changes(runner: Runner, test: Test, message: str) -> list[str]:
    """Say which line changes in place a tensor of the shape that a gradient needs as it was, if it is one line."""
    if not (shape := re.search(r"inplace operation: \[.*? \[([\d, ]*)\]\]", message)):
        return []
    trace = runner.look(test)
    changing = {(each.file, each.line): each for each in trace.places if each.in_place or _is_in_place(each.node)}
    tensors = {each: [x for x in trace.objects[each] if isinstance(x, Tensor)] for each in changing.values()}
    found = [each for each, own in tensors.items() if any(str([*x.shape]) == f"[{shape[1]}]" for x in own)]
    if len(found) != 1:
        return []
    return [f"{name_file(found[0].file, runner.suite.root)}:{found[0].line} changes a tensor of this shape in place."]


def _is_in_place(node: ast.AST) -> bool:
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name.endswith("_") and not name.endswith("__")


def _describe(place: Expression, since: Expression, trace: Trace, kind: str | int, runner: Runner) -> str:
    what = _read(trace.objects.get(place, trace.objects[since])[-1], kind)
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
    made, todo, is_indexed = None, {_find_origin(trace, (place, len(trace.objects[place]) - 1))}, False
    while todo:
        last = max(todo, key=lambda event: number[event[0]])
        if isinstance(last[0].node, ast.Name):
            came_in = any(x is trace.objects[last[0]][last[1]] for x in trace.given.values())
            return None if came_in and not is_indexed and (kind != "shape" or len(todo) == 1) else made
        made = last[0] if todo == {last} else made
        operands = [*trace.operand_times[last], *(_list_shaped(trace, last[0]) if kind == "shape" else ())]
        alike = [(each, time) for each, time in operands if wanted == _read(trace.objects[each][time], kind)]
        if kind == "shape" and not alike and (indices := _list_indices(trace, last[0], value.shape)):
            alike, wanted, is_indexed = indices, _read(trace.objects[indices[0][0]][-1], kind), True
        before = {each for each in map(partial(_find_origin, trace), alike) if number[each[0]] < number[last[0]]}
        if not before:
            made = last[0] if {each for each, _ in todo} == {last[0]} else made  # in several calls of a helper
            break
        todo = todo - {last} | before
    return None if made is place else made


def _find_origin(trace: Trace, event: Event) -> Event:
    """Find the event that computed the value of another one."""
    value, origin = trace.objects[event[0]][event[1]], trace.find_origin(*event)
    return origin, next((time for time, x in enumerate(trace.objects[origin]) if x is value), 0)


def _list_shaped(trace: Trace, place: Expression) -> list[Event]:
    """List the tensors whose shape an expression reads: `x` in `torch.zeros(x.shape)`."""
    inside = ast.walk(place.node)
    read = {id(each.value) for each in inside if isinstance(each, ast.Attribute) and each.attr == "shape"}
    return [(each, len(trace.objects[each]) - 1) for each in trace.places if id(each.node) in read]


def _list_indices(trace: Trace, place: Expression, shape: torch.Size) -> list[Event]:
    """List the tensor that indexes another one, if the shape of the result begins with its shape."""
    operands = trace.list_operands(place) if isinstance(place.node, ast.Subscript) else []
    tensors = [(each, x) for each in operands if isinstance(x := trace.objects[each][-1], Tensor)]
    found = [each for each, x in tensors if not x.is_floating_point() and x.ndim > 1 and x.shape == shape[: x.ndim]]
    return [(each, len(trace.objects[each]) - 1) for each in found]


def _read(x: object, kind: str | int) -> object:
    if not isinstance(x, Tensor):
        return None
    if isinstance(kind, int):
        return kind in x.shape
    value = x.is_contiguous() if kind == LYING else getattr(x, kind)
    return tuple(value) if isinstance(value, tuple) else value

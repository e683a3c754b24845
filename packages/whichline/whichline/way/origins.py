"""Since which line what an expression that raised is made of has had its shape, or its dtype."""

import ast
import re

from torch import Tensor

from whichline.engine.exception_report import ExceptionReport
from whichline.engine.messages import SIZES
from whichline.engine.suite import Test
from whichline.way.named import span_of
from whichline.way.probe import Place
from whichline.way.run import Runner
from whichline.way.telling import name_file
from whichline.way.trace import Trace

MOST = 2  # tensors that are followed
WIDTH = 60  # of an expression in a sentence
DTYPES = re.compile(r"dtype|scalar type|used as indices|boolean tensor")


def tell_origins(runner: Runner, test: Test, report: ExceptionReport) -> list[str]:
    """Say since which line the tensors that met where a test raised are what they are, if that is another one."""
    kind = "dtype" if DTYPES.search(report.text) else "shape" if re.search(SIZES, report.text) else ""
    if not kind or not report.node or not report.calls:
        return []
    trace, file = runner.look(test), report.calls[-1].tb_frame.f_code.co_filename
    spans = {span_of(node): node for node in ast.walk(report.node) if isinstance(node, ast.Name | ast.Attribute)}
    read = [place for place in trace.places if place.file == file and span_of(place.node) in spans]
    followed = [(place, since) for place in read if (since := _follow(trace, place, kind))]
    odd = [each for each in followed if not _is_as_known(trace, each[0])]
    told = [
        _say(place, since, trace, kind, runner)
        for place, since in odd or followed
        if (since.file, since.line) != (file, place.line)
    ]
    return [*dict.fromkeys(told)][:MOST]


def _is_as_known(trace: Trace, place: Place) -> bool:
    """Tell whether a tensor is a step, or came in, in the very shape of that."""
    match, value = trace.match(place), trace.objects[place][0]
    known = trace.known.values.get(match.names[0]) if match else None
    return known is not None and known.tensor.shape == value.shape


def tell_changes(runner: Runner, test: Test, message: str) -> list[str]:
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


def _say(place: Place, since: Place, trace: Trace, kind: str, runner: Runner) -> str:
    what = _property(trace.objects[place][0], kind)
    where = (
        f"line {since.line}" if since.file == place.file else f"{name_file(since.file, runner.suite.root)}:{since.line}"
    )
    text = str(since) if len(str(since)) <= WIDTH else f"{str(since)[: WIDTH - 2]} …"
    return f"`{place}` is {what} since {where}, `{text}`.".replace("torch.", "", kind == "dtype")


def _follow(trace: Trace, place: Place, kind: str) -> Place | None:
    """The expression that first had the shape, or the dtype, of what a name stands for; None if that came in."""
    values = trace.objects[place]
    if len(values) != 1 or not isinstance(values[0], Tensor):
        return None
    wanted, made = _property(values[0], kind), trace.origin(place)
    while made is not place and not isinstance(made.node, ast.Name):
        alike = [each for each in trace.made_of(made) if wanted in (_property(x, kind) for x in trace.objects[each])]
        further = [trace.origin(each) for each in alike]
        if len(alike) != 1 or further[0] is made:
            return made
        if isinstance(further[0].node, ast.Name):
            return None
        made = further[0]
    return None


def _property(x: object, kind: str) -> object:
    value = getattr(x, kind, None)
    return tuple(value) if isinstance(value, tuple) else value

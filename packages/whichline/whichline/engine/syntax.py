"""The source of a function: its `def`, its assignments, and whether its end can be reached."""

import ast
from collections.abc import Sequence
from types import CodeType, TracebackType
from typing import NamedTuple

from executing import Source


class Assigned(NamedTuple):
    """A line that gives a name its value."""

    line: int
    value: ast.expr | None  # the expression, if it is one
    last: int  # the end of its block: up to there, no line runs before this one has run


def find_node(trace: TracebackType) -> ast.AST | None:
    """The expression that raised; or the statement, if unpacking raised: an assignment, or the values of a loop."""
    found = Source.executing(trace)
    unpacking = (each for each in found.statements if isinstance(each, ast.Assign | ast.For))
    return found.node or next((each.iter if isinstance(each, ast.For) else each for each in unpacking), None)


def find_definition(code: CodeType) -> ast.FunctionDef | None:
    """The `def` of a code object in its file."""
    for node in ast.walk(Source.for_filename(code.co_filename).tree or ast.Pass()):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min(each.lineno for each in (node, *node.decorator_list))
            if first == code.co_firstlineno:
                return node
    return None


def find_end(code: CodeType) -> int:
    """The line at which the last statement of a function begins."""
    last: ast.AST = find_definition(code) or ast.Pass()
    body = getattr(last, "body", [])
    while body:
        last = body[-1]
        is_scope = isinstance(last, ast.FunctionDef | ast.ClassDef)
        body = [] if is_scope else getattr(last, "orelse", []) or getattr(last, "body", [])
    return getattr(last, "lineno", code.co_firstlineno)


def list_assigned(code: CodeType, text: str) -> list[Assigned]:
    """The lines of a function that give a name, or an attribute, a value."""
    found = []
    for node in ast.walk(find_definition(code) or ast.Pass()):
        if isinstance(getattr(node, "ctx", None), ast.Store) and ast.unparse(node) == text:
            statement, value = node.parent, None  # type: ignore[attr-defined]  # executing has put it there
            if isinstance(statement, ast.Tuple) and isinstance(statement.parent, ast.Assign):  # type: ignore[attr-defined]
                elements, statement = statement.elts, statement.parent  # type: ignore[attr-defined]
                pairs = zip(elements, getattr(statement.value, "elts", ()), strict=False)
                value = next((each for its, each in pairs if its is node), None)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                value = statement.value
            elif isinstance(statement, ast.withitem):
                value, statement = statement.context_expr, statement.parent.body[0]  # type: ignore[attr-defined]
            blocks = [getattr(getattr(statement, "parent", None), each, None) for each in ("body", "orelse")]
            last = next((each[-1].end_lineno for each in blocks if isinstance(each, list) and statement in each), 0)
            found.append(Assigned(getattr(node, "lineno", 0), value, last or 0))
    return sorted(found, key=lambda each: each.line)


def list_own_nodes(definition: ast.FunctionDef) -> list[ast.AST]:
    """List the nodes of a function that are in no function inside it."""
    functions = (each for each in ast.walk(definition) if isinstance(each, ast.FunctionDef | ast.Lambda))
    inner = {id(node) for each in functions if each is not definition for node in ast.walk(each)}
    return [each for each in ast.walk(definition) if id(each) not in inner]


def is_left(body: Sequence[ast.stmt]) -> bool:
    """Tell whether statements always, or perhaps, end with a `return` or a `raise`."""
    last = body[-1] if body else ast.Pass()
    if isinstance(last, ast.If):
        return is_left(last.body) and is_left(last.orelse)
    if isinstance(last, ast.With):
        return is_left(last.body)
    return isinstance(last, ast.Return | ast.Raise | ast.While | ast.Try | ast.Match)  # the last three may


def is_in_loop(node: ast.AST | None) -> bool:
    return bool(node) and (isinstance(node, ast.For | ast.While) or is_in_loop(getattr(node, "parent", None)))


def describe_parameters(definition: ast.FunctionDef) -> str:
    """The parameters of a function without their annotations."""
    parameters = ast.parse(ast.unparse(definition)).body[0].args  # type: ignore[attr-defined]  # a copy
    for each in ast.walk(parameters):
        if isinstance(each, ast.arg):
            each.annotation = None
    return ast.unparse(parameters)

"""What the names in a line stand for, while a traceback still holds their values."""

import ast
import builtins
import inspect
from collections import ChainMap
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import CodeType, FunctionType, TracebackType
from typing import Any

from torch import nn

# These can be computed again, since they change nothing: `x.shape[-1]`, `d_model // num_heads`.
PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp)
Names = Mapping[str, Any]


def get_names(trace: TracebackType) -> Names:
    """The names that a line can read."""
    return ChainMap(trace.tb_frame.f_locals, trace.tb_frame.f_globals, builtins.__dict__)


def resolve(node: ast.AST, names: Names, unknown: Any = None) -> Any:
    """The value of a name, or of an attribute of one; `unknown` if it cannot be found."""
    if isinstance(node, ast.Name):
        return names.get(node.id, unknown)
    return getattr(resolve(node.value, names), node.attr, unknown) if isinstance(node, ast.Attribute) else unknown


def compute(node: ast.AST, names: Names) -> Any:
    """The value of an expression that changes nothing; None for other expressions."""
    if not all(isinstance(each, (*PLAIN, ast.expr_context, ast.operator, ast.unaryop)) for each in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {}, names)  # type: ignore[arg-type]  # noqa: S307 (the student's)
    except Exception:  # the values may have changed since
        return None


def find_function(value: Any) -> FunctionType | None:
    """The function that runs when something is called: the `__init__` of a class, the `forward` of a module."""
    if isinstance(value, type):
        value = value.__init__
    elif isinstance(value, nn.Module):
        value = type(value).forward
    function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
    return function if isinstance(function, FunctionType) else None


def bind(call: ast.Call, code: CodeType) -> dict[str, ast.expr]:
    """Map the parameters of a function to the expressions that a call passes for them."""
    parameters = [each for each in code.co_varnames[: code.co_argcount] if each not in ("self", "cls")]
    named = {each.arg: each.value for each in call.keywords if each.arg}
    return {**dict(zip(parameters, call.args, strict=False)), **named}


def find_alike(name: str, names: Sequence[str]) -> str | None:
    """The name that is most like a given one, as for Python's "Did you mean"."""
    near = get_close_matches(name, names) or [each for each in names if each.lower() == name.lower()]
    begins = [each for each in near if name.startswith(each) or each.startswith(name)]
    return next(iter([*begins, *near]), None)

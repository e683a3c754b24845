"""The functions that an error came from: what they take, what they are passed, and where a `return` is missing."""

import ast
import builtins
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any

from executing import Source
from torch import nn

from whichline.engine.assignment import is_own_file, list_own_code

DEEPEST = 5  # functions that return one another's answer
# What can be computed again, since it changes nothing: `x.shape[-1]`, `d_model // num_heads`.
PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp)
Names = Mapping[str, Any]


class Definitions:
    """The functions of the calls that an error went through.

    Args:
        calls: those in the student's files, the innermost last.
        root: the folder of the assignment.
        called: the function of the student's that a test had called, if that is known.
    """

    def __init__(self, calls: Sequence[TracebackType], root: Path, called: Callable[..., Any] | None) -> None:
        self._calls, self._root, self._called = calls, root, called

    # A `return` that is missing.

    def find_forgotten(self, is_answer: bool) -> CodeType | None:
        """The function that gave None for want of a `return`: the answer, or what the expression that raised needs."""
        makers = [self._called] if is_answer else self._list_makers(len(self._calls) - 1)
        return next(
            (code for code in map(find_forgotten, makers) if code and is_own_file(code.co_filename, self._root)), None
        )

    def _list_makers(self, depth: int, node: ast.AST | None = None) -> Iterator[Any]:
        """The functions that made what is None in an expression of the call that is so deep."""
        trace = self._calls[depth]
        frame, node = trace.tb_frame, node or Source.executing(trace).node
        for each in ast.walk(node or ast.Pass()):
            if isinstance(each, ast.Call):
                yield resolve(each.func, names_in(trace))
            elif isinstance(each, ast.Name) and frame.f_locals.get(each.id, 0) is None:
                made = [value for line, value in list_assigned(frame.f_code, each.id) if line < each.lineno]
                outer = Source.executing(self._calls[depth - 1]).node if depth else None
                if made and isinstance(made[-1], ast.Call):
                    yield resolve(made[-1].func, names_in(trace))
                elif not made and isinstance(outer, ast.Call):
                    given = bind(outer, frame.f_code).get(each.id)
                    yield from self._list_makers(depth - 1, given) if given else ()

    # Names that are missing, and numbers that are no whole ones.

    def find_own(self, name: str) -> str:
        """The place of a class or a function of this name in another file of the student's; "" if there is none."""
        for path in list_own_code(self._root):
            tree = Source.for_filename(path).tree
            for node in tree.body if tree else ():
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                    return f"{path.relative_to(self._root).as_posix()}:{node.lineno}"
        return ""

    def find_fraction(self) -> list[str]:
        """Say which number is a fraction where a whole one is needed, and which line makes it so by `/`."""
        trace = self._calls[-1]
        code, names = trace.tb_frame.f_code, names_in(trace)
        maker = find_function(type(names.get("self")))
        codes = [code, maker.__code__] if maker else [code]
        for node in ast.walk(Source.executing(trace).node or ast.Pass()):
            value = resolve(node, names)
            if type(value) is float and value.is_integer():
                text = ast.unparse(node)
                made = [(each, line) for each in codes for line in list_divided(each, text)]
                where = f" since {self.place(*made[-1])}" if made else ""
                return [f"`{text}` is {value}{where}, and no whole number: `/` gives a fraction, `//` does not"]
        return []

    # What a call passes.

    def compare_call(self, message: str) -> list[str]:
        """Say how the `def` reads that a call does not fit, if the message is about that."""
        called = self._called
        if self._calls:
            node = Source.executing(self._calls[-1]).node
            called = resolve(node.func, names_in(self._calls[-1])) if isinstance(node, ast.Call) else None
        function = find_function(called)
        is_it = function and is_own_file(function.__code__.co_filename, self._root)
        if function and is_it and message.startswith((f"{function.__qualname__}() ", f"{function.__name__}() ")):
            return [f"the definition is {self._tell(function)}"]
        return []

    def find_swap(self) -> list[str]:
        """Say which two arguments are in each other's place, by their names or by the sizes of the test."""
        sizes = (
            {name.lower(): x for name, x in self._calls[0].tb_frame.f_locals.items() if type(x) is int}
            if self._calls
            else {}
        )
        for trace in reversed(self._calls):
            maker = find_function(type(trace.tb_frame.f_locals.get("self")))
            ran = [(trace.tb_frame.f_code, names_in(trace), trace.tb_lineno)]
            ran += [(maker.__code__, maker.__globals__, sys.maxsize)] if maker else []
            for code, names, last in ran:
                if said := next(self._list_swaps(code, names, last, sizes), None):
                    return [said]
        return []

    def _list_swaps(self, code: CodeType, names: Names, last: int, sizes: Mapping[str, int]) -> Iterator[str]:
        for call in ast.walk(find_definition(code) or ast.Pass()):
            function = find_function(resolve(call.func, names)) if isinstance(call, ast.Call) else None
            if not isinstance(call, ast.Call) or call.lineno > last or function is None:
                continue
            if not is_own_file(function.__code__.co_filename, self._root):
                continue
            given = bind(call, function.__code__)
            texts = {its: ast.unparse(node).removeprefix("self.") for its, node in given.items()}
            values = {its: x for its, node in given.items() if type(x := compute(node, names)) is int}
            its = find_exchanged(texts, {each.lower(): each for each in texts}) or find_exchanged(values, sizes)
            if its:
                size = f", {values[its]}," if its in values else ""
                yield (
                    f"the arguments are in another order than the parameters: {self.place(code, call.lineno)} passes "
                    f"`{texts[its]}`{size} for `{its}` of {self._tell(function)}"
                )

    def _tell(self, function: FunctionType) -> str:
        code, parameters = function.__code__, inspect.signature(function).parameters.values()
        taken = inspect.Signature([each.replace(annotation=each.empty) for each in parameters])
        definition = find_definition(code)
        return f"`def {code.co_name}{taken}` in {self.place(code, definition.lineno if definition else 0)}"

    def place(self, code: CodeType, line: int = 0) -> str:
        """The file and the line of a function, or a line in it."""
        return f"{Path(code.co_filename).relative_to(self._root).as_posix()}:{line or code.co_firstlineno}"


def find_definition(code: CodeType) -> ast.FunctionDef | None:
    """The `def` of a code object in its file."""
    for node in ast.walk(Source.for_filename(code.co_filename).tree or ast.Pass()):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min(each.lineno for each in (node, *node.decorator_list))
            if first == code.co_firstlineno:
                return node
    return None


def list_assigned(code: CodeType, name: str) -> list[tuple[int, ast.expr | None]]:
    """The lines of a function in which a name gets a value, and the expressions, where it gets the whole of one."""
    found: list[tuple[int, ast.expr | None]] = []
    for node in ast.walk(find_definition(code) or ast.Pass()):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            parent = getattr(node, "parent", None)
            found.append((node.lineno, parent.value if isinstance(parent, ast.Assign | ast.AnnAssign) else None))
    return sorted(found, key=lambda each: each[0])


def list_divided(code: CodeType, text: str) -> list[int]:
    """The lines of a function that give a name, or an attribute, what `/` computes."""
    return [
        node.lineno
        for node in ast.walk(find_definition(code) or ast.Pass())
        if isinstance(node, ast.Assign) and text in map(ast.unparse, node.targets)
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Div)
    ]


def names_in(trace: TracebackType) -> Names:
    """The names that a line can read."""
    return ChainMap(trace.tb_frame.f_locals, trace.tb_frame.f_globals, builtins.__dict__)


def list_names(trace: TracebackType) -> list[str]:
    """The names of a function and its file, but for those that are everywhere."""
    return [*trace.tb_frame.f_locals, *trace.tb_frame.f_globals]


def resolve(node: ast.AST, names: Names) -> Any:
    """Find what a name, or an attribute of one, stands for; None if that is not known."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(resolve(node.value, names), node.attr, None)
    return None


def compute(node: ast.AST, names: Names) -> Any:
    """The value of an expression that changes nothing; None of others."""
    if not all(isinstance(each, (*PLAIN, ast.expr_context, ast.operator, ast.unaryop)) for each in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {}, names)  # type: ignore[arg-type]  # noqa: S307 (the student's)
    except Exception:  # it is no longer what it was
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


def find_exchanged(given: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    """The first parameter that gets what is known under the name of another one, while that gets what is its own.

    Args:
        given: for each parameter, what it gets.
        known: by names in lower case, what goes by them.
    """

    def is_own(name: str, value: Any) -> bool:
        its = known.get(name.lower())
        return value.lower() == its.lower() if isinstance(value, str) and isinstance(its, str) else value == its

    wrong = [name for name in given if name.lower() in known and not is_own(name, given[name])]
    return next(
        (
            one
            for one in wrong
            for other in wrong
            if one != other and is_own(other, given[one]) and is_own(one, given[other])
        ),
        None,
    )


def find_forgotten(value: Any, deep: int = DEEPEST) -> CodeType | None:
    """The function that gives None since no `return` is in it: this one, or the one whose answer it returns."""
    function = find_function(value)
    definition = find_definition(function.__code__) if function else None
    if function is None or definition is None or not deep:
        return None
    inner = {
        id(each)
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not definition
        for each in ast.walk(node)
    }
    own = [each for each in ast.walk(definition) if id(each) not in inner]
    if not any(isinstance(each, ast.Return | ast.Yield | ast.YieldFrom | ast.Raise) for each in own):
        return function.__code__
    returned = definition.body[-1].value if isinstance(definition.body[-1], ast.Return) else None
    if not isinstance(returned, ast.Call):
        return None
    imported = [each for each in own if isinstance(each, ast.ImportFrom)]
    local = {
        alias.asname or alias.name: getattr(sys.modules.get(each.module or ""), alias.name, None)
        for each in imported
        for alias in each.names
    }
    names = ChainMap(local, function.__globals__)
    made = {
        target.id: each.value.func
        for each in own
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    called = returned.func
    if isinstance(called, ast.Name) and called.id in made and isinstance(kind := resolve(made[called.id], names), type):
        return find_forgotten(getattr(kind, "forward", None) or kind.__call__, deep - 1)
    return find_forgotten(resolve(called, names), deep - 1)


def find_alike(name: str, names: Sequence[str]) -> str | None:
    """The name that is most like another one: what Python asks, "Did you mean"."""
    near = get_close_matches(name, names, n=1) or [each for each in names if each.lower() == name.lower()]
    return near[0] if near else None

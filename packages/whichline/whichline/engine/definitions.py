"""The functions that an error came from: their parameters, their arguments, and where a `return` is missing."""

import ast
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any, NamedTuple, TypeVar

from executing import Source

from whichline.engine import syntax
from whichline.engine.assignment import is_own_file, list_own_code
from whichline.engine.compare import listed
from whichline.engine.names import Names, bind, compute, find_function, get_names, resolve
from whichline.engine.syntax import describe_parameters, find_definition, find_node, list_assigned, list_own_nodes

DEEPEST = 5  # how many functions are followed that return one another's output
Node = TypeVar("Node", bound=ast.AST)
Definition: Any = ast.ClassDef | ast.FunctionDef


class Origin(NamedTuple):
    """A line that gives a name its value."""

    code: CodeType  # of the function
    line: int
    value: ast.expr | None  # the expression, if it is one
    names: Names  # that the line can read


class Definitions:
    """Looks into the functions of the calls that an error went through; the arguments are those of its report."""

    def __init__(self, calls: Sequence[TracebackType], root: Path, called: Callable[..., Any] | None) -> None:
        self._calls, self._root, self._called = calls, root, called

    def find_forgotten(self, is_answer: bool) -> CodeType | None:
        """Find the function without a `return` that gave None: the output, or a value in the expression that raised."""
        makers = [self._called] if is_answer else self._list_makers()
        found = (code for code in map(find_forgotten, makers) if code)
        return next((code for code in found if is_own_file(code.co_filename, self._root)), None)

    def _list_makers(self) -> Iterator[Any]:
        """The functions that made the values that are None in the expression that raised."""
        trace = self._calls[-1]
        for each in ast.walk(find_node(trace) or ast.Pass()):
            if isinstance(each, ast.Call):
                yield resolve(each.func, get_names(trace))
            elif isinstance(each, ast.Name | ast.Attribute) and resolve(each, get_names(trace), ...) is None:
                made = self.find_origin_of_name(each)
                value = made.value if made else None
                given = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
                calls = [one for one in given if isinstance(one, ast.Call)]
                yield from (_find_maker(call, made.names) for call in calls if made)

    def find_origin_of_name(self, node: ast.expr, depth: int = -1) -> "Origin | None":
        """Find the line that gave a name, or an attribute of `self`, its value.

        A parameter is followed to the argument of the call. The name is read by the call `depth`; the innermost is −1.
        """
        trace = self._calls[depth]
        code, names = trace.tb_frame.f_code, get_names(trace)
        if isinstance(node, ast.Attribute):
            owner = resolve(node.value, names)
            return self.find_set(owner, node.attr) or _find_field(owner, node.attr)
        text = ast.unparse(node)
        all_of_them = list_assigned(code, text)
        before = [each for each in all_of_them if each.line < node.lineno]
        if before and syntax.is_in_loop(node):
            before += [each for each in all_of_them if each.line == node.lineno]
        if before:  # a line under a condition may not have run
            return Origin(code, before[-1].line, before[-1].value, names) if node.lineno <= before[-1].last else None
        outer = Source.executing(self._calls[depth - 1]).node if -depth < len(self._calls) else None
        given = bind(outer, code).get(text) if isinstance(outer, ast.Call) else None
        if given is None:
            return None
        made = self.find_origin_of_name(given, depth - 1) if isinstance(given, ast.Name | ast.Attribute) else None
        caller = self._calls[depth - 1]
        return made or Origin(caller.tb_frame.f_code, given.lineno, given, get_names(caller))

    def find_set(self, owner: Any, name: str) -> "Origin | None":
        """Find the one line that sets an attribute in the methods of an object."""
        methods = [find_function(each) for kind in type(owner).__mro__ for each in vars(kind).values()]
        own = [each for each in methods if each and is_own_file(each.__code__.co_filename, self._root)]
        found = [(function, each) for function in own for each in list_assigned(function.__code__, f"self.{name}")]
        if len(found) != 1:
            return None
        (function, set_) = found[0]
        return Origin(function.__code__, set_.line, set_.value, ChainMap({"self": owner}, function.__globals__))

    def describe_uncalled(self, owner: Any, name: str) -> str:
        """Say which constructor sets an attribute and is not called by that of a subclass; else ""."""
        inits = [each for kind in type(owner).__mro__ if (each := find_function(vars(kind).get("__init__")))]
        own = inits[0] if inits else None
        definition = find_definition(own.__code__) if own else None
        sets = [(each, at.line) for each in inits[1:] for at in list_assigned(each.__code__, f"self.{name}")]
        if not own or not definition or not sets or not is_own_file(own.__code__.co_filename, self._root):
            return ""
        if any("__init__" in ast.unparse(each.func) for each in ast.walk(definition) if isinstance(each, ast.Call)):
            return ""
        where = self.place(own.__code__, definition.body[0].lineno)
        ((base, line), *_) = sets
        its = f"{self.place(base.__code__, line)} sets it, in `{base.__qualname__}`"
        return f"{its}; `{own.__qualname__}`, which begins in {where}, does not call that"

    def describe_left_out(self, made: Origin) -> str:
        """Say which call makes an object without the argument that a line of its constructor keeps; else ""."""
        owner, its, name = made.names.get("self"), made.code, getattr(made.value, "id", "")
        kind = type(owner).__name__
        for code in [each.tb_frame.f_code for each in reversed(self._calls)] if its.co_name == "__init__" else ():
            for call in ast.walk(find_definition(code) or ast.Pass()):
                is_it = isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == kind
                if isinstance(call, ast.Call) and is_it and not {name, None} & {*bind(call, its), *_list_named(call)}:
                    return f": {self.place(code, call.lineno)} makes a `{kind}` without `{name}`"
        return ""

    def find_unkept(self, owner: Any, name: str) -> str:
        """The line of a constructor that computes what an object lacks, under this very name; "" if there is none."""
        function = find_function(getattr(type(owner), "__init__", None))
        if function is None or not is_own_file(function.__code__.co_filename, self._root):
            return ""
        lines = [each.line for each in list_assigned(function.__code__, name)]
        return self.place(function.__code__, lines[-1]) if lines else ""

    def list_stored(self, text: str, code: CodeType) -> list[str]:
        """The lines of a function's file that store something under a key of a dictionary."""
        nodes = ast.walk(Source.for_filename(code.co_filename).tree or ast.Pass())
        stores = [each for each in nodes if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store)]
        return [self.place(code, each.lineno) for each in stores if ast.unparse(each.value) == text]

    def describe_forgotten(self, code: CodeType) -> str:
        """Say that a function gives None where it ends without a `return`."""
        definition = find_definition(code)
        own = list_own_nodes(definition) if definition else []
        lines = [each.lineno for each in own if isinstance(each, ast.Return)]
        what = "has no `return`, so it gives None"
        if lines:
            where = f"line{'s' * (len(lines) > 1)} {listed(map(str, lines))}"
            what = f"has a `return` only in {where}, and returns None if that does not run"
        return f"`{code.co_qualname}` in {self.place(code)} {what}"

    def describe_silent(self, called: str) -> str:
        """Say which function makes one that is None, as a decorator or by its name, and has no `return`; else ""."""
        own = [(at, each) for at, _, each in self.list_own(ast.FunctionDef)]
        for at, each in own:
            if not _gives(each) and any(getattr(inner, "name", "") == called for inner in each.body):
                return f"`{each.name}` in {at} defines `{called}`, and has no `return`"
        for at, each in own:
            for maker in each.decorator_list if self._find_module(at).get(each.name, self) is None else ():
                if where := _find_silent(maker, own):
                    return f"`{each.name}` in {at} is None, since its decorator gives nothing back: {where}"
        return ""

    def _find_module(self, at: str) -> Mapping[str, Any]:
        """The names in the module at a position."""
        file = str(self._root / at.rpartition(":")[0])
        called = (each.tb_frame for each in self._calls)
        imported = (vars(each) for each in [*sys.modules.values()] if getattr(each, "__file__", "") == file)
        return next((each.f_globals for each in called if each.f_code.co_filename == file), None) or next(imported, {})

    def is_among_calls(self, at: str) -> bool:
        """Tell whether a position is in a function that the error went through."""
        codes = {each.tb_frame.f_code for each in self._calls}
        return at in {self.place(code, line) for code in codes for _, _, line in code.co_lines() if line}

    def list_own(self, kind: type[Node] = Definition) -> Iterator[tuple[str, ast.AST | None, Node]]:
        """The student's classes and functions, or other nodes: for each its position, its parent and the node."""
        for path in list_own_code(self._root):
            for node in ast.walk(Source.for_filename(path).tree or ast.Pass()):
                if isinstance(node, kind):
                    line = getattr(node, "lineno", 0)
                    yield f"{path.relative_to(self._root).as_posix()}:{line}", getattr(node, "parent", None), node

    def is_own(self, file: str) -> bool:
        return is_own_file(file, self._root)

    def find_own(self, name: str) -> str:
        """The position of a class or function of this name in any of the student's files; "" if there is none."""
        own = self.list_own()
        return next((at for at, holder, each in own if each.name == name and isinstance(holder, ast.Module)), "")

    def find_text(self, text: str) -> str:
        """The one position of a text in the student's files; "" if it stands in none or in several."""
        places = {at for at, _, each in self.list_own(ast.Constant) if each.value == text}
        return places.pop() if len(places) == 1 else ""

    def find_stored(self, name: str) -> str:
        """The one position at which an attribute of some object is set; "" if there is none, or several."""
        own = self.list_own(ast.Attribute)
        places = {at for at, _, each in own if each.attr == name and isinstance(each.ctx, ast.Store)}
        return places.pop() if len(places) == 1 else ""

    def find_global(self, name: str) -> str:
        """The one position at which a file assigns a global name; "" if there is none, or several."""
        own = ((at, each) for at, holder, each in self.list_own(ast.Assign) if isinstance(holder, ast.Module))
        places = {at for at, each in own if name in map(ast.unparse, each.targets)}
        return places.pop() if len(places) == 1 else ""

    def find_import(self, name: str) -> str:
        """Say which line of the file that raised imports from a module that has a name, too; "" if none does."""
        code = self._calls[-1].tb_frame.f_code
        nodes = ast.walk(Source.for_filename(code.co_filename).tree or ast.Pass())
        imports = [each for each in nodes if isinstance(each, ast.ImportFrom) and each.module]
        found = [each for each in imports if hasattr(sys.modules.get(each.module or ""), name)]
        place = self.place(code, found[0].lineno) if found else ""
        return f"{place} imports from `{found[0].module}`, which has `{name}`" if found else ""

    def find_fraction(self) -> list[str]:
        """Say which number is a float where an integer is needed, and which line makes it one with `/`."""
        names = get_names(self._calls[-1])
        todo = [*ast.walk(Source.executing(self._calls[-1]).node or ast.Pass())]
        for node in todo:  # the list grows
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            value = resolve(node, names)
            if type(value) is slice and (made := self.find_origin_of_name(node)) and made.value:
                todo += ast.walk(made.value)
            if type(value) is float and value.is_integer():
                made = self.find_origin_of_name(node)
                what = f"`{ast.unparse(node)}` is {value}"
                if not made or not (isinstance(made.value, ast.BinOp) and isinstance(made.value.op, ast.Div)):
                    return [f"{what}, not a whole number"]
                where = self.place(made.code, made.line)
                return [f"{what} since {where}, not a whole number: `/` gives a fraction, `//` does not"]
        return []

    def compare_call(self, message: str) -> list[str]:
        """Show the `def` that a call does not fit, if the message is about that."""
        if not (match := re.match(r"([\w.]+)\(\) (?:missing|takes|got)", message)):
            return []
        node = Source.executing(self._calls[-1]).node if self._calls else None
        called = find_function(resolve(node.func, get_names(self._calls[-1]))) if isinstance(node, ast.Call) else None
        if called and called.__qualname__ == match[1] and not is_own_file(called.__code__.co_filename, self._root):
            return []  # a function of torch's with the same name as one of the student's
        kind, _, name = match[1].rpartition("<locals>.")[2].rpartition(".")
        own = [each for each in self.list_own(ast.FunctionDef) if kind in ("", getattr(each[1], "name", ""))]
        names = [name, *(("__int__", "_init_", "__init", "init") if name == "__init__" else ())]
        found = [each for each in own if each[2].name in names]
        if len(found) != 1:
            return []
        at, holder, its = found[0]
        meant = [] if its.name == name else ["__init__"]
        if isinstance(holder, ast.ClassDef) and not its.decorator_list and not ast.unparse(its.args).startswith("self"):
            meant = ["self"]
        question = f": is `{meant[0]}` meant?" if meant else ""
        made = self._find_partial(node.func) if isinstance(node, ast.Call) and not question else ""
        made = made or (self._describe_inherited(node.func, kind) if isinstance(node, ast.Call) else "")
        return [f"the definition is `def {its.name}({describe_parameters(its)})` in {at}{question or made}"]

    def _describe_inherited(self, called: ast.expr, kind: str) -> str:
        """Say which class has the constructor of another one."""
        its = resolve(called, get_names(self._calls[-1]))
        place = self.find_own(its.__name__) if isinstance(its, type) and "__init__" not in vars(its) else ""
        return f"; `{its.__name__}`, in {place}, takes it from `{kind}`" if place else ""

    def _find_partial(self, called: ast.expr) -> str:
        """Say in which line a name gets a `functools.partial`."""
        trace, name = self._calls[-1], ast.unparse(called)
        if not isinstance(resolve(called, get_names(trace)), partial):
            return ""
        lines = [each.line for each in list_assigned(trace.tb_frame.f_code, name)]
        return f", and `{name}` is a partial of it since line {lines[-1]}" if lines else ""

    def find_swap(self) -> list[str]:
        """Say which two arguments are swapped, judging by their names or by the sizes in the test case."""
        given = self._calls[0].tb_frame.f_locals if self._calls else {}
        sizes = {name.lower(): x for name, x in given.items() if type(x) is int}
        for trace in {each.tb_frame.f_code: each for each in reversed(self._calls)}.values():
            maker = find_function(type(trace.tb_frame.f_locals.get("self")))
            ran = [(trace.tb_frame.f_code, get_names(trace), trace.tb_lineno)]
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
            kinds = {its: type(compute(node, names)) for its, node in given.items()}
            its = find_exchanged(texts, {each.lower(): each for each in texts}) or find_exchanged(values, sizes)
            if its := its or find_displaced(texts, kinds):
                size = f", {values[its]}," if its in values else ""
                passes = f"{self.place(code, call.lineno)} passes `{texts[its]}`{size} for `{its}`"
                yield f"the arguments are in another order than the parameters: {passes} of {self._describe(function)}"

    def _describe(self, function: FunctionType) -> str:
        code, definition = function.__code__, find_definition(function.__code__)
        taken, line = (describe_parameters(definition), definition.lineno) if definition else ("...", 0)
        return f"`def {code.co_name}({taken})` in {self.place(code, line)}"

    def place(self, code: CodeType, line: int = 0) -> str:
        """The file and line where a function begins, or of a line in it."""
        return f"{Path(code.co_filename).relative_to(self._root).as_posix()}:{line or code.co_firstlineno}"


def _find_field(owner: Any, name: str) -> Origin | None:
    """The constructor of a dataclass, which Python writes, as what sets a field."""
    if name not in getattr(owner, "__dataclass_fields__", ()) or isinstance(owner, type):
        return None
    return Origin(type(owner).__init__.__code__, 0, ast.Name(name), {"self": owner})


def _list_named(call: ast.Call) -> list[str | None]:
    """The names of a call's keywords; None for `**more`, and for `*more`."""
    return [*(each.arg for each in call.keywords), *[None] * any(isinstance(each, ast.Starred) for each in call.args)]


def find_exchanged(given: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    """The first of two parameters that get each other's values; in `known` are those of each name, in lower case."""

    def is_own(name: str, value: Any) -> bool:
        its = known.get(name.lower())
        return value.lower() == its.lower() if isinstance(value, str) and isinstance(its, str) else value == its

    wrong = [name for name in given if name.lower() in known and not is_own(name, given[name])]
    pairs = ((one, other) for one in wrong for other in wrong if one != other)
    return next((one for one, other in pairs if is_own(other, given[one]) and is_own(one, given[other])), None)


def find_displaced(texts: Mapping[str, str], kinds: Mapping[str, type]) -> str | None:
    """The first parameter whose argument has another one's name, if one of the two gets an int, the other a float."""
    moved = ((one, text) for one, text in texts.items() if text in texts and texts[text] != text and text != one)
    return next((one for one, text in moved if {*map(kinds.get, (one, text))} == {int, float}), None)


def _find_maker(call: ast.Call, names: Mapping[str, Any]) -> Any:
    """Find the function that gives a name its value: the one that is called, or what `with` calls at its start."""
    called, statement = resolve(call.func, names), getattr(call, "parent", None)  # executing has put it there
    if called is None and isinstance(call.func, ast.Attribute):  # of an object that is gone: one class has the method
        attr = call.func.attr
        classes = {each for each in names.values() if isinstance(each, type) and attr in vars(each)}
        called = vars(classes.pop())[attr] if len(classes) == 1 else None
    is_entered = isinstance(statement, ast.withitem) and isinstance(called, type)
    return getattr(called, "__enter__", None) if is_entered else called


def find_forgotten(value: Any, deep: int = DEEPEST) -> CodeType | None:
    """Find the function that gives None since it lacks a `return`: this one, or the one whose output it returns."""
    function = find_function(value)
    definition = find_definition(function.__code__) if function else None
    if function is None or definition is None or not deep:
        return None
    own = list_own_nodes(definition)
    given = [each.value for each in own if isinstance(each, ast.Return)]
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own):
        return None
    if not syntax.is_left(definition.body) and not any(each is None or ast.unparse(each) == "None" for each in given):
        return function.__code__
    returned = definition.body[-1].value if isinstance(definition.body[-1], ast.Return) else None
    if not isinstance(returned, ast.Call):
        return None
    aliases = [(each.module or "", alias) for each in own if isinstance(each, ast.ImportFrom) for alias in each.names]
    local = {its.asname or its.name: getattr(sys.modules.get(module), its.name, None) for module, its in aliases}
    names = ChainMap(local, function.__globals__)
    assigned = (each for each in own if isinstance(each, ast.Assign))
    calls = [(each.targets, each.value.func) for each in assigned if isinstance(each.value, ast.Call)]
    made = {target.id: func for targets, func in calls for target in targets if isinstance(target, ast.Name)}
    called = returned.func
    if isinstance(called, ast.Name) and called.id in made and isinstance(kind := resolve(made[called.id], names), type):
        return find_forgotten(getattr(kind, "forward", None) or kind.__call__, deep - 1)
    return find_forgotten(resolve(called, names), deep - 1)


def _find_silent(maker: ast.expr, own: Sequence[tuple[str, ast.FunctionDef]]) -> str:
    """Say which function of a decorator, the outer or the inner one, has no `return`; "" if both have one."""
    called = ast.unparse(maker.func if isinstance(maker, ast.Call) else maker)
    for place, outer in own:
        inner = [*outer.body, outer] if isinstance(maker, ast.Call) else [outer]
        silent = [each for each in inner if isinstance(each, ast.FunctionDef) and not _gives(each)]
        if outer.name == called and silent:
            within = "" if silent[0] is outer else f" inside `{outer.name}`,"
            return f"`{silent[0].name}`,{within} in {place.rpartition(':')[0]}:{silent[0].lineno}, has no `return`"
    return ""


def _gives(function: ast.FunctionDef) -> bool:
    """Tell whether a function returns a value somewhere."""
    return any(isinstance(each, ast.Return) and each.value for each in list_own_nodes(function))

"""Compiling a file with a probe at every expression in its functions.

Nothing is evaluated twice: an object that a statement changes in place is held in a name, which is deleted afterwards.
"""

import ast
import copy
import functools
from dataclasses import dataclass, field
from types import CodeType
from typing import TypeVar

from whichline.locate.probe import Expression

PROBE, HELD, VALUE = "__probe__", "__held__", "__value__"  # names that no class mangles
ENTER, ANSWER, LEAVE = "__enter_call__", "__answer_call__", "__leave_call__"
PROBED = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.IfExp, ast.ListComp, ast.Name, ast.Subscript,
    ast.UnaryOp,
)  # fmt: skip
READ, WRITE, DELETE = ast.Load(), ast.Store(), ast.Del()
MOST_FILES = 256  # that stay compiled, since every search needs all files
T = TypeVar("T", bound=ast.AST)


@dataclass
class ProbedFile:
    """A file with probes."""

    places: list[Expression] = field(default_factory=list)  # its expressions, in the order of the probes' numbers
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)  # its functions, by qualified name
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))
    code: CodeType | None = None  # the tree, compiled


@functools.lru_cache(MOST_FILES)
def instrument(name: str, source: str, only_definitions: bool = False) -> ProbedFile:
    """Put probes into a file; with `only_definitions`, keep only its functions and classes."""
    file = ProbedFile()
    tree = ast.parse(source)
    if only_definitions:
        tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    try:
        file.tree = ast.fix_missing_locations(_Instrument(name, source, file).visit(tree))
    except RecursionError:  # nested too deeply: the file runs without probes
        file.tree = ast.parse(source)
    return file


class _Instrument(ast.NodeTransformer):
    """Puts every expression of every function into a call of the probe."""

    def __init__(self, name: str, source: str, file: ProbedFile) -> None:
        self.name = name
        self.lines = source.splitlines(keepends=True)
        self.file = file
        self.scope: list[str] = []
        self.parameters: tuple[str, ...] = ()
        self.functions = 0
        self.held: ast.expr | None = None

    def _probe(self, old: ast.expr | ast.stmt, value: ast.expr, in_place: bool = False) -> ast.Call:
        place = Expression(self.name, ".".join(self.scope), old, _get_text(self.lines, old), self.parameters, in_place)
        self.file.places.append(place)
        call = ast.Call(ast.Name(PROBE, READ), [ast.Constant(len(self.file.places) - 1), value], [])
        for each in (call, call.func, call.args[0]):
            ast.copy_location(each, old)
        return call

    # Scopes. Of a function, only the body gets probes: its defaults and decorators run at the definition.

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.scope.append(node.name)
        functions, self.functions = self.functions, 0
        node.body = self._block(node.body)
        self.functions = functions
        self.scope.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.scope += [node.name] if not self.functions else ["<locals>", node.name]
        self.file.definitions[".".join(self.scope)] = copy_whole(node)
        self.functions += 1
        outer, self.parameters = self.parameters, _list_parameters(node.args)
        begins = int(ast.get_docstring(node, clean=False) is not None)
        node.body = [*node.body[:begins], self._enter(node), *self._block(node.body[begins:])]
        self.parameters = outer
        self.functions -= 1
        del self.scope[-1 if not self.functions else -2 :]
        return node

    def _enter(self, node: ast.FunctionDef) -> ast.stmt:
        """Report a call and its arguments as it begins; the recorder may know the result already."""
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        given: list[ast.expr] = [ast.Name(each.arg, READ) for each in parameters]
        enter = ast.Call(ast.Name(ENTER, READ), [ast.Tuple(given, READ)], [])
        return _locate(node.body[0], ast.If(enter, [ast.Return(ast.Call(ast.Name(ANSWER, READ), [], []))], []))[0]

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Report the result of a call."""
        if not node.value:
            return node
        leave = ast.Call(ast.Name(LEAVE, READ), [self.visit(node.value)], [])
        return _locate(node, ast.Return(leave))[0]

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        new = copy.copy(node)
        outer, self.parameters = self.parameters, _list_parameters(node.args)
        self.functions += 1
        new.body = self.visit(node.body)
        self.functions -= 1
        self.parameters = outer
        return new

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.body = self._block(node.body)  # a pattern is no expression
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.body = self._block(node.body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value:
            node.value = self.visit(node.value)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not self.functions or isinstance(node, ast.stmt):
            return super().generic_visit(node)
        new = _duplicate(node)  # an `Expression` holds the old one, which stays whole
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, [self.visit(each) if isinstance(each, ast.AST) else each for each in value])
            elif isinstance(value, ast.AST):
                setattr(new, name, self.visit(value))
        if not isinstance(node, PROBED) or not isinstance(getattr(node, "ctx", READ), ast.Load):
            return new
        assert isinstance(new, ast.expr)
        probe = self._probe(node, new)
        return ast.NamedExpr(ast.Name(HELD, WRITE), probe) if node is self.held else probe

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self._probe(node, self._visit_in_call(node)) if self.functions else super().generic_visit(node)

    def _visit_in_call(self, node: ast.Call) -> ast.Call:
        new = _duplicate(node)
        if isinstance(node.func, ast.Attribute):  # only the object gets a probe, not the method
            new.func = _duplicate(node.func)
            new.func.value = self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            new.func = self.visit(node.func)
        new.args = [self.visit(each) for each in node.args]
        values = ((each, self.visit(each.value)) for each in node.keywords)
        new.keywords = [ast.copy_location(ast.keyword(each.arg, value), each) for each, value in values]
        return new

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        new: list[ast.stmt] = []
        for statement in body:
            visited = self.visit(statement)
            new += visited if isinstance(visited, list) else [visited]
        return new

    def _look_after(self, old: ast.stmt, new: ast.stmt, changed: ast.expr) -> list[ast.stmt]:
        """Add a probe, after a statement, for the object that it changes in place."""
        if not isinstance(changed, ast.Name | ast.Attribute):
            return [new]
        name = changed.id if isinstance(changed, ast.Name) else HELD
        look: list[ast.stmt] = [ast.Expr(self._probe(old, ast.Name(name, READ), in_place=True))]
        return _locate(old, new, *look, *([ast.Delete([ast.Name(HELD, DELETE)])] if name == HELD else []))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not self.functions or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return super().generic_visit(node)
        if not call.func.attr.endswith("_") or call.func.attr.endswith("__"):
            return super().generic_visit(node)
        changed = call.func.value
        while isinstance(changed, ast.Subscript):
            changed = changed.value
        if isinstance(changed, ast.Call):  # `x.mul_(y).add_(z)` returns the changed object
            return ast.Expr(self._probe(node, self._visit_in_call(call), in_place=True))
        self.held = changed if isinstance(changed, ast.Attribute) else None
        return self._look_after(node, ast.Expr(self._visit_in_call(call)), changed)

    def _look_at_target(self, old: ast.stmt, new: ast.stmt, target: ast.Subscript) -> list[ast.stmt]:
        """Add a probe, after a statement, for the object whose elements it sets: `x.y[i] = z`."""
        inner = target
        while isinstance(inner.value, ast.Subscript):
            inner = inner.value
        changed = inner.value
        if isinstance(changed, ast.Attribute):
            inner.value = ast.NamedExpr(ast.Name(HELD, WRITE), changed)
        return self._look_after(old, new, changed)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        if not self.functions:
            return node
        new = copy.copy(node)
        new.value, new.target = self.visit(node.value), copy_whole(node.target)
        if isinstance(new.target, ast.Subscript):
            return self._look_at_target(node, new, new.target)
        if isinstance(new.target, ast.Attribute):
            return self._add_to_attribute(node, new, new.target)
        again = ast.Name(new.target.id, READ)
        return _locate(node, new, ast.Assign([new.target], self._probe(node, again, in_place=True)))

    def _add_to_attribute(self, old: ast.AugAssign, new: ast.AugAssign, target: ast.Attribute) -> list[ast.stmt]:
        """Write `x.y += z` in the steps that Python takes: read once, add, write."""
        hold = ast.Assign([ast.Name(HELD, WRITE)], target.value)
        read = ast.Assign([ast.Name(VALUE, WRITE)], ast.Attribute(ast.Name(HELD, READ), target.attr, READ))
        new.target = ast.Name(VALUE, WRITE)
        written = ast.Attribute(ast.Name(HELD, READ), target.attr, WRITE)
        write = ast.Assign([written], self._probe(old, ast.Name(VALUE, READ), in_place=True))
        end = ast.Delete([ast.Name(HELD, DELETE), ast.Name(VALUE, DELETE)])
        return _locate(old, hold, read, new, write, end)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        if not self.functions:
            return self._visit_lambda(node)
        new = copy.copy(node)
        new.value, new.targets = self.visit(node.value), [*map(copy_whole, node.targets)]
        for target in new.targets:
            if isinstance(target, ast.Subscript):
                return self._look_at_target(node, new, target)
        unpacked = [target.elts for target in node.targets if isinstance(target, ast.Tuple)]
        names = [each for elements in unpacked for each in elements if isinstance(each, ast.Name)]
        return [new, *(self._look_again(name) for name in names)]

    def _visit_lambda(self, node: ast.Assign) -> ast.Assign:
        """Treat a lambda that gets a name outside functions as a function of that name; others keep that of Python."""
        is_named = isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Name)
        self.scope.append(ast.unparse(node.targets[0]) if is_named else "<lambda>")
        node.value = self.visit(node.value)
        self.scope.pop()
        return node

    def _look_again(self, name: ast.Name) -> ast.stmt:
        """Add a probe for a value that was unpacked into a name: `*_, length, width = x.shape`."""
        look = ast.Assign([ast.Name(name.id, WRITE)], self._probe(name, ast.Name(name.id, READ)))
        return _locate(name, look)[0]


def _list_parameters(arguments: ast.arguments) -> tuple[str, ...]:
    return tuple(each.arg for each in (*arguments.posonlyargs, *arguments.args))


def _locate(old: ast.AST, *statements: ast.stmt) -> list[ast.stmt]:
    """Give the new nodes in some statements the position of an old one."""
    for each in statements:
        for node in ast.walk(each):
            if not hasattr(node, "lineno") and "lineno" in node._attributes:
                ast.copy_location(node, old)
    return [*statements]


def _duplicate(node: T) -> T:
    """Copy a node, but not its children; copy.copy would take five times as long."""
    new = type(node).__new__(type(node))  # without its arguments, `type(node)()` is deprecated
    vars(new).update(vars(node))
    return new


def copy_whole(node: T) -> T:
    """Copy a node and its children.

    `copy.deepcopy` would follow the parents that `executing` hangs on contexts, of which Python has one for all trees.
    """
    new = _duplicate(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(new, name, copy_whole(value))
        elif isinstance(value, list):
            setattr(new, name, [copy_whole(each) if isinstance(each, ast.AST) else each for each in value])
    return new


def _get_text(lines: list[str], node: ast.expr | ast.stmt) -> str:
    """Return the text of a node; `ast.get_source_segment` would split the whole source each time."""
    end = node.end_lineno or node.lineno
    encoded = [line.encode() for line in lines[node.lineno - 1 : end]]
    encoded[-1] = encoded[-1][: node.end_col_offset]
    encoded[0] = encoded[0][node.col_offset :]
    return b"".join(encoded).decode()

"""Probes: a student's functions, compiled anew with a look at the value of every expression.

What cannot be compiled anew (generated code, a file that was saved since it was imported) runs as it is: a call of it
is one expression.
"""

import ast
import copy
import functools
import gc
import inspect
import linecache
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor

PROBE = "__probe__"  # a name that no class mangles
LARGEST = 1 << 16  # numbers in a value that is kept
MOST_TIMES = 512  # that an expression is computed in one call; of one that is computed more often nothing is kept
PROBED = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.IfExp,
    ast.ListComp,
    ast.Name,
    ast.Subscript,
    ast.UnaryOp,
)

PLACES: list["Place"] = []  # a probe knows the number of its own
READ = ast.Load()
CACHE = type(functools.cache(len))
T = TypeVar("T", bound=ast.AST)


@dataclass(frozen=True, eq=False)
class Place:
    """An expression of the student's, or a tensor that a statement has changed in place.

    Args:
        file: as Python knows it.
        function: its qualified name.
        node: the expression; of a statement in place, the statement.
        text: as it stands in the file.
        parameters: of the function.
        in_place: whether what is seen is a tensor after a statement has changed it.
    """

    file: str
    function: str
    node: ast.expr | ast.stmt
    text: str
    parameters: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def line(self) -> int:
        return self.node.lineno

    @cached_property
    def is_read(self) -> bool:
        """Tell whether this is a name that only stands for a value."""
        return isinstance(self.node, ast.Name) and isinstance(self.node.ctx, ast.Load)

    @cached_property
    def is_unpacked(self) -> bool:
        """Tell whether this is a name that gets one of several values."""
        return isinstance(self.node, ast.Name) and isinstance(self.node.ctx, ast.Store)

    def __str__(self) -> str:
        return " ".join(self.text.split())


class TooLongError(BaseException):
    """A run goes on and on: it is not an error of the student's, who might catch that."""


@dataclass
class Recorder:
    """Note values in their order, and give other values in the place of some: every probe calls it.

    Args:
        put: by place, what makes another value of the one that comes, for its n-th time; None leaves it.
        noting: whether values are kept.
        limit: looks after which a run ends: a value that is put in may make an endless loop.
        watch: called with every place.
    """

    put: dict[Place, Callable[[int, Any], Any]] = field(default_factory=dict)
    noting: bool = True
    limit: int = 1_000_000
    watch: Callable[[Place], None] | None = None
    looks: int = 0
    values: dict[Place, list[Any]] = field(default_factory=dict)
    objects: dict[Place, list[Any]] = field(default_factory=dict)  # the values themselves
    order: list[Place] = field(default_factory=list)  # of all values
    has_put: bool = False
    is_over: bool = False  # the call: what a backward pass computes later is not noted
    _times: dict[Place, int] = field(default_factory=dict)
    _kept: dict[int, tuple[int, Any]] = field(default_factory=dict)  # by the id of a tensor its version, and a copy

    def begin(self) -> None:
        """Forget what was noted: another call of an adapter begins."""
        self.values, self.objects, self.order, self._times, self._kept, self.is_over = {}, {}, [], {}, {}, False

    def look(self, place: Place, value: Any) -> Any:
        """Note a value, and give it or another one back. Most of the time of a search is spent here."""
        self.looks += 1
        if self.looks > self.limit:
            raise TooLongError
        if self.watch and not self.is_over:
            self.watch(place)
        kind = type(value)
        if place.is_unpacked and kind is not int:
            return value  # it was seen where it was made
        if kind is Tensor or isinstance(value, Tensor | int | float):
            return self._look(place, value)
        if kind in (tuple, list) and value and all(isinstance(each, Tensor) for each in value):
            looked = kind(self._look(place, each) for each in value)
            return looked if place in self.put else value  # a list stays the one that the code goes on with
        return value

    def _look(self, place: Place, value: Any) -> Any:
        if self.noting and not self.is_over:
            self._note(place, value)
        if place not in self.put:
            return value
        time = self._times[place] = self._times.get(place, -1) + 1
        new = self.put[place](time, value)
        if new is None:
            return value
        self.has_put = True
        if place.in_place and isinstance(value, Tensor):
            return value.copy_(new)  # the storage stays: other names may look at it
        return new

    def _note(self, place: Place, value: Any) -> None:
        if place.in_place:
            self._kept.clear()  # what is changed by way of `x.data`, or of an array, has the same version
        values = self.values.get(place)
        if values is None:
            values, self.objects[place] = self.values.setdefault(place, []), []
        if len(values) < MOST_TIMES:
            values.append(self._keep(value))
            self.objects[place].append(value)
            self.order.append(place)
        else:
            values[:] = [None] * len(values)

    def _keep(self, value: Any) -> Any:
        """A copy, the same one as long as nothing changes the tensor: many names are read again and again."""
        if not isinstance(value, Tensor):
            return value
        if value.is_inference():
            return _copy(value)
        version, kept = self._kept.get(id(value), (-1, None))  # an id is of one tensor here: all are held
        if version != value._version:
            kept = _copy(value)
            self._kept[id(value)] = value._version, kept
        return kept


def _copy(value: Tensor) -> Tensor | None:
    """A copy, in float64 where it has a fraction; None in the place of a tensor that is too large."""
    if value.numel() > LARGEST:
        return None
    value = torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach()
    return value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone()


class Probes:
    """Puts probes into the functions whose files are a student's.

    Args:
        is_students: tells by a file's name whether it is.
    """

    def __init__(self, is_students: Callable[[str], bool]) -> None:
        self.recorder = Recorder()
        self.changed: dict[FunctionType, tuple[CodeType, CodeType]] = {}
        self.caches: list[Any] = []  # what functools has kept of earlier calls
        is_students = functools.cache(is_students)  # a process has a hundred thousand functions in a few thousand files
        self.files: dict[str, ProbedFile] = {}
        for function in [each for each in gc.get_objects() if type(each) in (FunctionType, CACHE)]:
            is_cache = type(function) is CACHE
            code = getattr(inspect.unwrap(function) if is_cache else function, "__code__", None)
            if code is None or not is_students(code.co_filename):
                continue
            if is_cache:
                self.caches.append(function)
                continue
            if code.co_filename not in self.files:
                linecache.checkcache(code.co_filename)
                source = "".join(linecache.getlines(code.co_filename))
                self.files[code.co_filename] = _compile(code.co_filename, source)
            for plain, probed in self.files[code.co_filename].functions.get(code.co_qualname, ()):
                if _is_same(plain, code) and probed.co_freevars == code.co_freevars:
                    self.changed[function] = code, probed
                    break

    @cached_property
    def places(self) -> list[Place]:
        return [place for file in self.files.values() for place in file.places]

    @cached_property
    def definitions(self) -> dict[tuple[str, str], ast.FunctionDef]:
        """The functions of all files, by file and qualified name."""
        return {(name, each): node for name, file in self.files.items() for each, node in file.definitions.items()}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Run the functions with their probes; they are as they were afterwards, whatever happens."""
        try:
            for function, (_, probed) in self.changed.items():
                function.__globals__[PROBE] = self._probe
                function.__code__ = probed
            yield
        finally:
            for function, (code, _) in self.changed.items():
                function.__code__ = code
                function.__globals__.pop(PROBE, None)
            self.forget()  # a value that was put in may be kept there

    def forget(self) -> None:
        """Empty the caches of the student's functions, so that these run again."""
        for cache in self.caches:
            cache.cache_clear()

    def leave_out(self, functions: Collection[tuple[str, str]]) -> None:
        """Run these, by file and qualified name, as they are, so that a call is one expression; others with probes."""
        for function, (code, probed) in self.changed.items():
            function.__code__ = code if (code.co_filename, function.__qualname__) in functions else probed

    def _probe(self, number: int, value: Any) -> Any:
        return self.recorder.look(PLACES[number], value)


@dataclass
class ProbedFile:
    """A file's functions, as they are and with probes, and their definitions, both by their qualified names."""

    functions: dict[str, list[tuple[CodeType, CodeType]]] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)


@functools.cache  # every problem of which a test fails looks through all files
def _compile(name: str, source: str) -> ProbedFile:
    """Compile a file as it is and with probes."""
    file = ProbedFile()
    try:
        tree = ast.parse(source)
        plain = compile(source, name, "exec", dont_inherit=True)
        instrumented = ast.fix_missing_locations(_Instrument(name, source, file).visit(tree))
        probed = compile(instrumented, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):  # it was saved since it was imported
        return ProbedFile()
    for one, other in _pairs(plain, probed):
        file.functions.setdefault(one.co_qualname, []).append((one, other))
    return file


def _pairs(plain: CodeType, probed: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions in two codes that differ in probes alone."""
    inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (plain, probed)]
    for one, other in zip(*inner, strict=True):
        yield one, other
        yield from _pairs(one, other)


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Tell whether two functions were compiled from the same text; a decorator more moves the first line."""

    def constants(code: CodeType) -> list[Any]:
        return [each for each in code.co_consts if not isinstance(each, CodeType)]

    return (one.co_code, one.co_names, constants(one)) == (other.co_code, other.co_names, constants(other))


class _Instrument(ast.NodeTransformer):
    """Wraps every expression of every function in a call of the probe."""

    def __init__(self, name: str, source: str, file: ProbedFile) -> None:
        self.name = name
        self.lines = source.splitlines(keepends=True)
        self.file = file
        self.scope: list[str] = []
        self.parameters: tuple[str, ...] = ()
        self.functions = 0

    def _place(self, node: ast.expr | ast.stmt, in_place: bool = False) -> ast.expr:
        text = _segment(self.lines, node)
        place = Place(self.name, ".".join(self.scope), node, text, self.parameters, in_place)
        self.file.places.append(place)
        PLACES.append(place)
        return ast.Constant(len(PLACES) - 1)

    def _probe(self, old: ast.expr, new: ast.expr, in_place: bool = False) -> ast.expr:
        call = ast.Call(ast.Name(PROBE, READ), [self._place(old, in_place), new], [])
        for each in (call, call.func, call.args[0]):
            ast.copy_location(each, old)
        return call

    # Scopes. What is evaluated where a function is defined stays as it is, but for its body.

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.scope.append(node.name)
        functions, self.functions = self.functions, 0
        node.body = self._block(node.body)
        self.functions = functions
        self.scope.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.scope += [node.name] if not self.functions else ["<locals>", node.name]
        self.file.definitions[".".join(self.scope)] = copy.copy(node)
        self.functions += 1
        outer, self.parameters = self.parameters, tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))
        node.body = self._block(node.body)
        self.parameters = outer
        self.functions -= 1
        del self.scope[-1 if not self.functions else -2 :]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        new = copy.copy(node)
        self.functions += 1
        new.body = self.visit(node.body)
        self.functions -= 1
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

    # Expressions.

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not self.functions or isinstance(node, ast.stmt):
            return super().generic_visit(node)
        new = _duplicate(node)  # the old one stays whole: it is what a place is made of
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, [self.visit(each) if isinstance(each, ast.AST) else each for each in value])
            elif isinstance(value, ast.AST):
                setattr(new, name, self.visit(value))
        if isinstance(node, PROBED) and isinstance(new, ast.expr) and isinstance(getattr(node, "ctx", READ), ast.Load):
            return self._probe(node, new)
        return new

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not self.functions:
            return super().generic_visit(node)
        new = _duplicate(node)
        if isinstance(node.func, ast.Attribute):  # not the function itself, but what it is called on
            new.func = ast.copy_location(
                ast.Attribute(self.visit(node.func.value), node.func.attr, node.func.ctx), node.func
            )
        elif not isinstance(node.func, ast.Name):
            new.func = self.visit(node.func)
        new.args = [self.visit(each) for each in node.args]
        new.keywords = [
            ast.copy_location(ast.keyword(each.arg, self.visit(each.value)), each) for each in node.keywords
        ]
        return self._probe(node, new)

    # Statements that change a tensor in place.

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        new: list[ast.stmt] = []
        for statement in body:
            visited = self.visit(statement)
            new += visited if isinstance(visited, list) else [visited]
        return new

    def _after(self, statement: ast.stmt, changed: ast.expr, new: ast.stmt) -> list[ast.stmt] | ast.stmt:
        """Look at what a statement has changed, after it."""
        while isinstance(changed, ast.Subscript):
            changed = changed.value
        if not self.functions or not isinstance(changed, ast.Name | ast.Attribute):
            return new
        load = copy.deepcopy(changed)
        load.ctx = ast.Load()
        probe = ast.Call(ast.Name(PROBE, ast.Load()), [self._place(statement, True), load], [])
        if isinstance(changed, ast.Name) and isinstance(statement, ast.AugAssign) and statement.target is changed:
            # `x += 1` makes another number. `x[0] += 1` assigns no name: an assignment to `x` would make it local.
            look: ast.stmt = ast.Assign([ast.Name(changed.id, ast.Store())], probe)
        else:
            look = ast.Expr(probe)
        return [new, ast.fix_missing_locations(ast.copy_location(look, statement))]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if (
            self.functions
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr.endswith("_")
            and not call.func.attr.endswith("__")
        ):
            return self._after(
                copy.copy(node), call.func.value, ast.copy_location(ast.Expr(self.visit(call).args[1]), node)
            )
        return super().generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        old = copy.copy(node)
        node.value = self.visit(node.value)
        return self._after(old, node.target, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        old = copy.copy(node)
        node.value = self.visit(node.value)
        into = [target for target in node.targets if isinstance(target, ast.Subscript)]
        if into:
            return self._after(old, into[0], node)
        unpacked = [target.elts for target in node.targets if isinstance(target, ast.Tuple)]
        names = [each for elements in unpacked for each in elements if isinstance(each, ast.Name)]
        return [node, *map(self._look_again, names)] if self.functions and names else node

    def _look_again(self, name: ast.Name) -> ast.stmt:
        """Look at what was unpacked into a name: `*_, length, width = x.shape`."""
        load = ast.Name(name.id, ast.Load())
        probe = ast.Call(ast.Name(PROBE, ast.Load()), [self._place(name), load], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([ast.Name(name.id, ast.Store())], probe), name))


def _duplicate(node: T) -> T:
    """The same node with the same children; copy.copy would take five times as long."""
    new = type(node)()
    vars(new).update(vars(node))
    return new


def _segment(lines: list[str], node: ast.expr | ast.stmt) -> str:
    """The text of a node, whose columns count bytes; `ast.get_source_segment` splits the whole source each time."""
    end = node.end_lineno or node.lineno
    encoded = [line.encode() for line in lines[node.lineno - 1 : end]]
    encoded[-1] = encoded[-1][: node.end_col_offset]
    encoded[0] = encoded[0][node.col_offset :]
    return b"".join(encoded).decode()

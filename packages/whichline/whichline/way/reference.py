"""The right program of a problem, observed: what it computes under a name is a step that a student's value is held against.

    # 3 Attention
    def run_attention(Q, K, V):
        scores = Q @ K.mT / math.sqrt(Q.shape[-1])  #: the scaled scores. What is the variance of a dot product?

A value has the name of its variable; a `#:` comment on its line, or above it, names it better, and asks after the first
full stop what a tutor would ask. A comment that begins with a number is the section of the handout. In a function that
is called several times `{}` in a name, or its end, says which call it is: the variable that gets the answer, and how
often each loop has turned.
"""

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib.util import find_spec
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whichline.engine.assignment import PROBLEMS, put_root_on_path
from whichline.way.instrument import ANSWER, ENTER, PROBE, instrument
from whichline.way.values import Value, as_value

MODULE = "reference"
TURNS = "__turns__"
SECTION = re.compile(r"# (\w*\d\w* \S.*)")
Span = tuple[int, int, int, int]


@dataclass(frozen=True)
class Named:
    """An expression whose value has a name.

    Args:
        text: the name; `{}` stands for which call it is.
        ask: what a tutor asks of whoever has another value.
        section: of the handout.
        node: the expression.
        is_written: whether a comment names it, not its variable.
        is_answer: whether it is returned.
    """

    text: str
    ask: str
    section: str
    node: ast.expr
    is_written: bool
    is_answer: bool = False

    @cached_property
    def uses(self) -> set[str]:
        return list_names(self.node)


@dataclass(frozen=True)
class Site:
    """A call of a function of a reference, in a function that may call it several times.

    Args:
        node: the call.
        role: which of these calls it is: "the queries".
        differing: the positions and names of the arguments that differ between the calls.
    """

    node: ast.Call
    role: str
    differing: frozenset[int | str]

    def pass_on(self, names: set[str], parameters: list[str]) -> set[str]:
        """The parameters that get something made of these variables."""
        return {parameter for _, parameter, value in self._bind(parameters) if names & list_names(value)}

    def find_differing(self, parameters: list[str]) -> set[str]:
        """The parameters that get something else in each of the calls."""
        return {parameter for where, parameter, _ in self._bind(parameters) if where in self.differing}

    def _bind(self, parameters: list[str]) -> Iterator[tuple[int | str, str, ast.expr]]:
        yield from ((i, name, x) for i, (name, x) in enumerate(zip(parameters, self.node.args, strict=False)))
        yield from ((each.arg, each.arg, each.value) for each in self.node.keywords if each.arg)


@dataclass
class Function:
    """A function of a reference: what its loops and calls are called, and what is made of what.

    Args:
        parameters: their names.
        made: for each assignment, the variables that it sets and those that it reads.
        loops: the first line of each and the last, and its name, from the outermost on.
        sites: its calls of functions of references.
    """

    parameters: list[str]
    made: list[tuple[set[str], set[str]]] = field(default_factory=list)
    loops: list[tuple[int, int, str]] = field(default_factory=list)
    sites: dict[Span, Site] = field(default_factory=dict)

    def spread(self, names: set[str]) -> set[str]:
        """These variables and all that are made of them."""
        while more := {new for sets, reads in self.made if reads & names for new in sets} - names:
            names = names | more
        return names


@dataclass(frozen=True)
class Context:
    """Where a value is computed: in which calls of a reference's functions.

    Args:
        where: which call it is; in the place of each `%d` stands how often a loop has turned.
        loops: of these loops: in which of the calls each is, from the outermost on, and its line.
        inner: which of the calls is that of another adapter, the innermost one; 0 if none is.
    """

    where: str
    loops: tuple[tuple[int, int], ...]
    inner: int


class References:
    """The references of the assignment, imported once more with a probe at every expression."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Any]] = {}
        self._functions: dict[tuple[str, str], Function] = {}
        self._contexts: dict[Any, Context] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._step: Callable[..., Any] | None = None
        self._taken: list[tuple[Value, int]] = []

    def load(self, name: str) -> dict[str, Any]:
        """The names of a reference's module, imported at first."""
        if name not in self._modules:
            spec = find_spec(name)
            assert spec is not None
            assert spec.origin
            source = spec.loader.get_source(name)  # type: ignore[union-attr]  (a file of Python)
            probed = instrument(spec.origin, source)
            names = read_names(source)
            self._functions |= {(spec.origin, each): function for each, function in read_functions(source).items()}
            seen = {i: names[at] for i, each in enumerate(probed.places) if (at := span_of(each.node)) in names}
            code = compile(_CountTurns().visit(probed.tree), spec.origin, "exec", dont_inherit=True)
            more = {PROBE: partial(self._look, seen), ENTER: lambda given: False, ANSWER: None}
            more |= {TURNS: self._count_turns, "__import__": self._import}
            self._modules[name] = {"__name__": name, "__file__": spec.origin, "__builtins__": vars(builtins) | more}
            exec(code, self._modules[name])  # noqa: S102 (the course's)
        return self._modules[name]

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if fromlist and is_reference(name):
            return SimpleNamespace(**self.load(name))
        return __import__(name, globals, locals, fromlist, level)

    @contextmanager
    def observing(self, step: Callable[..., Any]) -> Iterator[None]:
        self._step, self._taken, self._turns = step, [], {}
        try:
            yield
        finally:
            self._step, self._taken = None, []

    def _count_turns(self, line: int, values: Any) -> Iterator[Any]:
        frame = id(sys._getframe(1))
        for self._turns[frame, line], value in enumerate(values, 1):
            yield value

    def _look(self, seen: Mapping[int, Named], number: int, value: Any) -> Any:
        if self._step is not None and number in seen and is_step(value, seen[number].is_written):
            self._take(seen[number], value, sys._getframe(1))
        return value

    def _take(self, named: Named, value: Any, frame: FrameType) -> None:
        frames = list_frames(frame)
        if named.is_answer and len(frames) > 1:
            return  # the caller names it
        key = (named, *((each.f_code, each.f_lasti) for each in frames[:-1]))
        if key not in self._contexts:
            self._contexts[key] = self._find_context(named, frames)
        context = self._contexts[key]
        inner = id(frames[context.inner]) if context.inner else 0
        if inner and isinstance(named.node, ast.Name):
            return  # what an earlier problem is given has a name already
        kept = torch.view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value
        new = as_value(kept)
        if inner and any(other != inner and is_same(new, each) for each, other in self._taken):
            return  # what it computes may have one, too
        self._taken.append((new, inner))
        where = context.where % tuple(self._turns[id(frames[i]), line] for i, line in context.loops)
        assert self._step
        self._step(write_name(named.text, where), kept if isinstance(value, Tensor) else float(value), named.ask, named.section)

    def _find_context(self, named: Named, frames: list[FrameType]) -> Context:
        """Find the loops in which a value is computed, and the roles of the calls that it depends on."""
        parts: list[tuple[str, set[str] | None, tuple[int, int] | None]] = []
        inner = 0
        for i, frame in enumerate(frames):
            function = self._functions[frame.f_code.co_filename, frame.f_code.co_qualname]
            inner = i if i and frame.f_code.co_name.startswith("run_") else inner
            is_last = i + 1 == len(frames)
            at = span_of(named.node) if is_last else find_position(frame)
            for first, last, label in function.loops:
                if first <= at[0] <= last:
                    parts.insert(0, (f"{label} %d", None, (i, first)))
            site = function.sites.get(at)
            if is_last or site is None:
                break
            callee = self._functions[frames[i + 1].f_code.co_filename, frames[i + 1].f_code.co_qualname]
            parts = [
                (text, names and callee.spread(site.pass_on(names, callee.parameters)), loop)
                for text, names, loop in parts
            ]
            if site.role:
                parts.insert(0, (site.role, callee.spread(site.find_differing(callee.parameters)), None))
        told = [(text, loop) for text, names, loop in parts if names is None or names & named.uses]
        told.sort(key=lambda part: part[0].startswith(","))
        where = "".join(text if text.startswith(",") else f" of {text}" for text, _ in told)
        return Context(where, tuple(loop for _, loop in told if loop), inner)


def is_step(value: Any, is_written: bool) -> bool:
    """Tell whether a value is a step: a tensor, or a number that is a fraction or that a comment names."""
    return isinstance(value, Tensor | float) or (is_written and type(value) is int)


def list_frames(frame: FrameType | None) -> list[FrameType]:
    """The calls of references that are being made, the outermost first."""
    found: list[FrameType] = []
    while frame is not None and PROBE in frame.f_builtins and TURNS in frame.f_builtins:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def find_position(frame: FrameType) -> Span:
    """Where the call stands that a frame is making."""
    line, end, column, stop = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return line or 0, end or 0, column or 0, stop or 0


def write_name(text: str, where: str) -> str:
    """A name in which `{}`, or else its end, says which call it is of."""
    if "{}" not in text:
        return text + where
    return text.replace(" of {}", where).replace("{}", where.removeprefix(" of "))


class _CountTurns(ast.NodeTransformer):
    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        count = ast.Call(ast.Name(TURNS, ast.Load()), [ast.Constant(node.lineno), node.iter], [])
        node.iter = ast.fix_missing_locations(ast.copy_location(count, node.iter))
        return node


def is_same(one: Value, other: Value) -> bool:
    """Tell whether two tensors are the same; those of one number may be so by chance."""
    is_like = one.digest == other.digest and one.tensor.dtype == other.tensor.dtype
    return one.tensor.numel() > 1 and is_like and torch.equal(one.tensor, other.tensor)


def is_reference(module: str) -> bool:
    return module.startswith(f"{PROBLEMS}.") and module.endswith(f".{MODULE}")


def span_of(node: ast.AST) -> Span:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]


def list_names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def read_comments(source: str) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """What `#:` comments say of the statements on some lines, and the sections, by the line where they begin."""
    said: dict[int, str] = {}
    sections: list[tuple[int, str]] = []
    above, question = "", ""
    for number, line in enumerate(source.splitlines(), 1):
        code, mark, text = line.partition("#:")
        text = text.strip()
        if found := SECTION.fullmatch(line):
            sections.append((number, found[1]))
        elif not line.strip():
            question = ""
        elif mark and not code.strip():
            above = f"{above} {text}".strip()
            if above.endswith("?") and ". " not in above:
                above, question = "", above
        else:
            said[number] = above or text
            if question and ". " not in said[number]:
                said[number] += f". {question}"
            above = ""
    return said, sections


def read_names(source: str) -> dict[Span, Named]:
    """The expressions that have a name."""
    said, sections = read_comments(source)
    found: dict[Span, Named] = {}
    for node in ast.walk(ast.parse(source)):
        is_return = isinstance(node, ast.Return)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            default = name_variable(node.targets[0].id)
        elif isinstance(node, ast.Return) and node.value:
            default = "the answer"
        else:
            continue
        value = node.value.elts[0] if is_return and isinstance(node.value, ast.Tuple) else node.value
        comment = read_comment(said, node)
        text, _, ask = comment.partition(". ")
        section = next((each for line, each in reversed(sections) if line < node.lineno), "")
        text = text.removesuffix(".")
        found[span_of(value)] = Named(text or default, ask, section, value, bool(text), is_return)
    return found


def read_comment(said: Mapping[int, str], node: ast.stmt) -> str:
    """What a comment says of a statement: beside it, or above it."""
    lines = [node.lineno, node.end_lineno or 0]
    return next((said[line] for line in lines if line in said), "")


def name_variable(name: str) -> str:
    return ("" if name.startswith("all_") else "the ") + name.replace("_", " ")


def read_functions(source: str) -> dict[str, Function]:
    """The functions of a reference, by name."""
    said, _ = read_comments(source)
    tree = ast.parse(source)
    known = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom) and is_reference(each.module or "")]
    known |= {each.asname or each.name for node in imports for each in node.names}
    return {each.name: _read_function(each, said, known) for each in tree.body if isinstance(each, ast.FunctionDef)}


def _read_function(node: ast.FunctionDef, said: Mapping[int, str], known: set[str]) -> Function:
    function = Function([each.arg for each in (*node.args.args, *node.args.kwonlyargs)])
    calls: dict[str, list[tuple[ast.Call, str, bool]]] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            function.made.append(({name for target in each.targets for name in list_names(target)}, list_names(each.value)))
        elif isinstance(each, ast.For):
            label = said.get(each.lineno, "turn")
            function.loops.append((each.lineno, each.end_lineno or 0, label))
            function.made.append((list_names(each.target), list_names(each.iter)))
        roles = {}
        if isinstance(each, ast.Expr):
            roles[id(each.value)] = read_comment(said, each).partition(". ")[0], True
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            roles[id(each.value)] = name_variable(each.targets[0].id), False
        if isinstance(each, ast.stmt):
            for call in list_own_calls(each):
                if call.func.id in known:  # type: ignore[attr-defined]
                    role, is_written = roles.get(id(call), ("", False))
                    calls.setdefault(call.func.id, []).append((call, role, is_written))  # type: ignore[attr-defined]
    function.loops.sort()
    for several in calls.values():
        is_written = any(role and written for _, role, written in several)
        differing = _find_differing([call for call, _, _ in several])
        for call, role, written in several:
            told = role if len(several) > 1 and written == is_written else ""
            function.sites[span_of(call)] = Site(call, told, differing)
    return function


def list_own_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls by a plain name in a statement, but for those in statements inside it."""
    todo = [each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node
        todo += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _find_differing(calls: list[ast.Call]) -> frozenset[int | str]:
    """The positions and names of arguments that are not the same in all calls."""
    given: dict[int | str, list[str]] = {}
    for call in calls:
        for i, each in enumerate(call.args):
            given.setdefault(i, []).append(ast.dump(each))
        for keyword in call.keywords:
            given.setdefault(keyword.arg or "", []).append(ast.dump(keyword.value))
    return frozenset(where for where, texts in given.items() if len(texts) < len(calls) or len(set(texts)) > 1)


@cache
def load_references() -> References:
    put_root_on_path()
    return References()


@dataclass(frozen=True)
class Reference:
    """The right program of an adapter."""

    problem: str
    adapter: str

    def __call__(self, step: Callable[..., Any], *args: Any, **named: Any) -> Any:
        references = load_references()
        function = references.load(f"{PROBLEMS}.{self.problem}.{MODULE}")[self.adapter]
        with references.observing(step), in_float64():
            return function(*args, **named)


@contextmanager
def in_float64() -> Iterator[None]:
    """Have torch make float64 where nothing else is asked for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

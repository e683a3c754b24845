"""The observed references of the problems: each value that they compute under a name is a checkpoint.

A reference is imported once more with a probe at each of these values; `named` says what its comments mean.
"""

import ast
import builtins
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whichline.engine.assignment import PROBLEMS, put_root_on_path
from whichline.engine.compare import change_tensors, in_dtype, in_float64
from whichline.engine.problem_folder import (
    IS_ADAPTER,
    REFERENCE,
    is_kept,
    list_adapters,
    list_problem_folders,
    read_reference,
)
from whichline.locate.checkpoints import Arguments, Checkpoints, Step, list_leaves
from whichline.locate.instrument import PROBE
from whichline.locate.named import Function, Named, NamedFile, Span, is_reference, span_of
from whichline.locate.values import Value, as_value, is_equal

TURNS = "__turns__"
# raised if the arguments do not fit
REFUSED = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, ArithmeticError)
PASSED = "How does this number come from the adapter to this line?"


@dataclass(frozen=True)
class Context:
    """The calls of a reference's functions in which a value is computed."""

    where: str  # the end of its name; each `%d` stands for the turn of a loop
    loops: Sequence[tuple[int, int]]  # these loops, the innermost first: the index of the call, and the line
    inner: int  # the index of the innermost call of another adapter; 0 if there is none


class _References:
    """The references of one assignment, each imported when it is first needed."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Any]] = {}
        self._functions: dict[tuple[str, str], Function] = {}
        self._contexts: dict[Any, Context] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._steps: dict[str, Step] | None = None
        self._arguments = Arguments()
        self._taken: dict[str, tuple[Value, FrameType | None]] = {}  # by name, with the call of another adapter
        self._alike: dict[Hashable, list[str]] = {}  # names of tensors that may be equal

    def load(self, name: str) -> Mapping[str, Any]:
        """Import a reference, and return its global names."""
        if name not in self._modules:
            spec = find_spec(name)
            assert spec is not None
            assert spec.origin
            source = spec.loader.get_source(name)  # type: ignore[union-attr]  (of a file of Python)
            named = NamedFile(source)
            self._functions |= {(spec.origin, each): function for each, function in named.functions.items()}
            more = {PROBE: partial(self._look, named.values), TURNS: self._count_turns, "__import__": self._import}
            built_in = {**vars(builtins), **more}
            self._modules[name] = {"__name__": name, "__file__": spec.origin, "__builtins__": built_in}
            tree = ast.parse(source)
            _Instrument(named.values).visit(tree)
            exec(compile(ast.fix_missing_locations(tree), spec.origin, "exec", dont_inherit=True), self._modules[name])  # noqa: S102 (the course's own)
        return self._modules[name]

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """Import a module for a reference; another reference is observed, too."""
        if is_reference(name):
            return SimpleNamespace(**self.load(name))
        return __import__(name, globals, locals, fromlist, level)

    @contextmanager
    def observing(self, steps: dict[str, Step], arguments: Arguments) -> Iterator[None]:
        """Collect the checkpoints of the calls in this block."""
        self._steps, self._arguments = steps, arguments
        try:
            yield
        finally:
            self._steps, self._taken, self._alike, self._turns = None, {}, {}, {}

    def _count_turns(self, line: int, values: Any) -> Iterator[Any]:
        frame = id(sys._getframe(1))
        for self._turns[frame, line], value in enumerate(values, 1):
            yield value

    def _look(self, named: Mapping[Span, Named], span: Span, value: Any) -> Any:
        is_step = isinstance(value, Tensor | float) or (type(value) is int and named[span].is_written)
        if self._steps is not None and is_step:
            self._take(self._steps, named[span], value, _list_frames(sys._getframe(1)))
        return value

    def _take(self, steps: dict[str, Step], named: Named, value: Any, frames: Sequence[FrameType]) -> None:
        if named.is_answer and len(frames) > 1:
            self._leave_out(steps, value, frames[-1])
            return  # the caller names it
        key = named, *((id(each.f_code), each.f_lasti) for each in frames[:-1])
        if key not in self._contexts:
            self._contexts[key] = self._find_context(named, frames)
        context = self._contexts[key]
        inner = frames[context.inner] if context.inner else None
        if inner and isinstance(named.node, ast.Name):
            return  # an argument of another adapter has a name already
        tensor = torch.view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value
        new = as_value(tensor)
        if inner and self._is_taken(new, inner):
            return  # and so may a value that it computes
        turns = tuple(self._turns[id(frames[number]), line] for number, line in context.loops)
        name = named.write(context.where % turns)
        series = named.write(context.where.replace(" %d", "")) if turns else ""
        step = Step(name, new, tensor, named.ask, named.section, len(steps), series, self._arguments, turns)
        if steps.setdefault(name, step) is step:
            self._taken[name] = new, inner
            self._alike.setdefault(_sum_up(new), []).append(name)

    def _is_taken(self, value: Value, inner: FrameType) -> bool:
        """Tell whether a tensor equals a checkpoint outside this call; single numbers may be equal by chance."""
        names = self._alike.get(_sum_up(value), ()) if value.tensor.numel() > 1 else ()
        taken = (self._taken[name] for name in names if name in self._taken)
        return any(other is not inner and torch.equal(value.tensor, each.tensor) for each, other in taken)

    def _leave_out(self, steps: dict[str, Step], answer: Any, frame: FrameType) -> None:
        """Leave out another adapter's checkpoints if its output is known: the reference computes it in its own way."""
        inside = [name for name, (_, inner) in self._taken.items() if inner is frame]
        if inside and self._is_taken(as_value(answer), frame):
            for name in inside:
                del self._taken[name], steps[name]

    def _find_context(self, named: Named, frames: Sequence[FrameType]) -> Context:
        """Find the loops in which a value is computed, and the roles of the calls on which it depends."""
        functions = [self._functions[each.f_code.co_filename, each.f_code.co_qualname] for each in frames]
        spans = [*map(_find_position, frames[:-1]), span_of(named.node)]
        parts: list[tuple[str, tuple[int, int] | None]] = []
        roles: dict[int, set[str]] = {}  # of each part that is a role, the variables that depend on it
        for i, (function, span) in enumerate(zip(functions, spans, strict=True)):
            parts += [(f"{label} %d", (i, first)) for first, last, label in function.loops if first <= span[0] <= last]
            if i + 1 < len(frames) and (site := function.sites.get(span)):
                callee = functions[i + 1]
                roles = {part: site.pass_on(names, callee.parameters) for part, names in roles.items()}
                if site.role:
                    roles[len(parts)] = site.find_differing(callee.parameters)
                    parts.append((site.role, None))
                roles = {part: callee.spread(names) for part, names in roles.items()}
        needed = [part for i, part in enumerate(parts) if i not in roles or roles[i] & named.reads][::-1]
        needed.sort(key=lambda part: part[0].startswith(","))
        where = "".join(text if text.startswith(",") else f" of {text}" for text, _ in needed)
        inner = [i for i, each in enumerate(frames) if i and IS_ADAPTER.match(each.f_code.co_name)]
        return Context(where, [loop for _, loop in needed if loop], max(inner, default=0))


class _Instrument(ast.NodeTransformer):
    """Puts a probe at each value that has a name, and a counter into each loop."""

    def __init__(self, spans: Collection[Span]) -> None:
        self._spans = spans

    def visit(self, node: ast.AST) -> ast.AST:
        new = super().visit(node)
        return _call(PROBE, span_of(node), new) if isinstance(new, ast.expr) and span_of(node) in self._spans else new

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = _call(TURNS, node.lineno, node.iter)
        return node


def _call(name: str, constant: Any, value: ast.expr) -> ast.expr:
    """Put a value into a call of one of our functions, with a constant."""
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(constant), value], []), value)


def _list_frames(frame: FrameType | None) -> list[FrameType]:
    """List the frames of references, the outermost first."""
    found: list[FrameType] = []
    while frame is not None and TURNS in frame.f_builtins:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _find_position(frame: FrameType) -> Span:
    """Find the position of the call that a frame is making."""
    line, end, column, stop = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return line or 0, end or 0, column or 0, stop or 0


def _sum_up(value: Value) -> Hashable:
    """Make a key that is the same for equal tensors."""
    return value.tensor.shape, value.tensor.dtype, value.digest


@cache
def _load_references() -> _References:
    put_root_on_path()
    return _References()


@dataclass(frozen=True)
class Reference:
    """The reference of an adapter."""

    problem: str
    adapter: str

    def load(self) -> Any:
        """Return the observed function; its problem's reference is imported once."""
        return _load_references().load(f"{PROBLEMS}.{self.problem}.{REFERENCE}")[self.adapter]

    def answer(self, arguments: Mapping[str, Any]) -> Any:
        """Compute the right output in float64."""
        with in_float64(), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            return self.load()(**{name: in_dtype(x, torch.float64) for name, x in arguments.items()})

    def compute_checkpoints(self, arguments: Mapping[str, Any]) -> Checkpoints:
        """Return the checkpoints on a call's arguments, in float64, computed when needed; none if the reference raises.

        The output alone is computed without them; then the reference's error is raised.
        """
        own = change_tensors({**arguments}, lambda x: x.detach().requires_grad_(x.requires_grad))
        leaves = Arguments(list_leaves(own))

        def run(taken: dict[str, Step] | None) -> Any:
            if taken is None:
                return self.answer(own)
            for name, x in arguments.items():
                if type(x) is float:
                    word = f"`{name}`"
                    taken[word] = Step(word, as_value(x), x, PASSED, "", len(taken), "", leaves)
            try:
                with _load_references().observing(taken, leaves):
                    answer = self.answer(own)
            except REFUSED:
                taken.clear()
                return None
            _add_outputs(taken, answer)
            return answer

        return Checkpoints(run, leaves)


def _add_outputs(taken: dict[str, Step], answer: Any) -> None:
    """Add further outputs that have no name yet; the first output stays the last checkpoint."""
    for number, part in enumerate(answer[1:] if isinstance(answer, tuple) and taken else (), 2):
        if isinstance(part, Tensor) and not any(is_equal(part, step.value.tensor) for step in taken.values()):
            name, last = taken.popitem()
            taken[f"output {number}"] = replace(last, name=f"output {number}", value=as_value(part), tensor=part)
            taken[name] = replace(last, order=last.order + 1)


def load_references(problem: str) -> dict[str, Reference]:
    """Return the references of a problem by adapter; each is imported at its first call.

    There are none if only staff have the reference, and it is not here.
    """
    if is_kept(problem, read_reference(problem)):
        return {}
    return {adapter: Reference(problem, adapter) for adapter in list_adapters(problem)}


@cache
def list_counterparts() -> Sequence[str]:
    """List the words that are counterparts in the names of checkpoints, as "keys" and "values", the longest first."""
    sources = [read_reference(problem) for problem in list_problem_folders()]
    found = {word for source in sources for pair in NamedFile(source).list_counterparts() for word in pair}
    return sorted(found, key=len, reverse=True)

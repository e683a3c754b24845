"""The references of the problems, observed: each value that they compute under a name is a step.

A reference is imported once more with a probe at every expression; `named` says what its comments mean.
"""

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whichline.engine.assignment import PROBLEMS, put_root_on_path
from whichline.engine.compare import in_dtype, in_float64
from whichline.engine.problem_folder import IS_ADAPTER, REFERENCE, list_adapters, list_problem_folders, read_reference
from whichline.way.instrument import ENTER, PROBE, instrument
from whichline.way.named import Function, Named, NamedFile, Span, is_reference, span_of
from whichline.way.steps import Arguments, Step, Steps, list_leaves
from whichline.way.values import Value, as_value

TURNS = "__turns__"
PASSED = "How does this number come from the adapter to this line?"


@dataclass(frozen=True)
class Context:
    """The calls of a reference's functions in which a value is computed.

    Args:
        where: what they add to its name; each `%d` stands for how often a loop has turned.
        loops: these loops, from the innermost on: in which of the calls each is, and its line.
        inner: which of the calls is the innermost one of another adapter; 0 if none is.
    """

    where: str
    loops: Sequence[tuple[int, int]]
    inner: int


class _References:
    """The references of one assignment, each imported when it is first asked for."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Any]] = {}
        self._functions: dict[tuple[str, str], Function] = {}
        self._contexts: dict[Any, Context] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._steps: Steps | None = None
        self._taken: dict[str, tuple[Value, FrameType | None]] = {}  # by name, and in which call of another adapter

    # The import.

    def load(self, name: str) -> Mapping[str, Any]:
        """The names in a reference, whose module has this name."""
        if name not in self._modules:
            spec = find_spec(name)
            assert spec is not None
            assert spec.origin
            source = spec.loader.get_source(name)  # type: ignore[union-attr]  (of a file of Python)
            probed, named = instrument(spec.origin, source), NamedFile(source)
            self._functions |= {(spec.origin, each): function for each, function in named.functions.items()}
            spans = enumerate(span_of(place.node) for place in probed.places)
            of_probe = {number: named.values[span] for number, span in spans if span in named.values}
            more = {PROBE: partial(self._look, of_probe), ENTER: lambda given: False, TURNS: self._count_turns}
            names = {**vars(builtins), **more, "__import__": self._import}
            self._modules[name] = {"__name__": name, "__file__": spec.origin, "__builtins__": names}
            code = compile(_CountTurns().visit(probed.tree), spec.origin, "exec", dont_inherit=True)
            exec(code, self._modules[name])  # noqa: S102 (the course's own)
        return self._modules[name]

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """Import what a reference imports; of another reference, the observed one."""
        if is_reference(name):
            return SimpleNamespace(**self.load(name))
        return __import__(name, globals, locals, fromlist, level)

    # Steps.

    @contextmanager
    def observing(self, steps: Steps) -> Iterator[None]:
        """Take the steps of what is called in this block."""
        self._steps, self._taken = steps, {}
        try:
            yield
        finally:
            self._steps, self._taken, self._turns = None, {}, {}

    def _count_turns(self, line: int, values: Any) -> Iterator[Any]:
        frame = id(sys._getframe(1))
        for self._turns[frame, line], value in enumerate(values, 1):
            yield value

    def _look(self, of_probe: Mapping[int, Named], number: int, value: Any) -> Any:
        if self._steps is not None and number in of_probe and _is_step(value, of_probe[number]):
            self._take(self._steps, of_probe[number], value, _list_frames(sys._getframe(1)))
        return value

    def _take(self, steps: Steps, named: Named, value: Any, frames: Sequence[FrameType]) -> None:
        if named.is_answer and len(frames) > 1:
            self._leave_out(steps, value, frames[-1])
            return  # the caller names it
        key = named, *((each.f_code, each.f_lasti) for each in frames[:-1])
        if key not in self._contexts:
            self._contexts[key] = self._find_context(named, frames)
        context = self._contexts[key]
        inner = frames[context.inner] if context.inner else None
        if inner and isinstance(named.node, ast.Name):
            return  # what another adapter is given has a name already
        tensor = torch.view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value
        new = as_value(tensor)
        if inner and any(other is not inner and _is_same(new, each) for each, other in self._taken.values()):
            return  # and so may what it computes
        turns = tuple(self._turns[id(frames[number]), line] for number, line in context.loops)
        name = named.write(context.where % turns)
        series = named.write(context.where.replace(" %d", "")) if turns else ""
        ask, section, order = named.ask, named.section, len(steps.taken)
        step = Step(name, new, tensor, ask, section, order, series, steps.arguments, turns)
        if steps.taken.setdefault(name, step) is step:
            self._taken[name] = new, inner

    def _leave_out(self, steps: Steps, answer: Any, frame: FrameType) -> None:
        """Leave out what another adapter computes for an answer that is a step: the reference has another way to it."""
        inside = [name for name, (_, inner) in self._taken.items() if inner is frame]
        value = as_value(answer) if inside else None
        if value and any(_is_same(value, each) for each, inner in self._taken.values() if inner is not frame):
            for name in inside:
                del self._taken[name], steps.taken[name]

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
        told = [part for i, part in enumerate(parts) if i not in roles or roles[i] & named.reads][::-1]
        told.sort(key=lambda part: part[0].startswith(","))
        where = "".join(text if text.startswith(",") else f" of {text}" for text, _ in told)
        inner = [i for i, each in enumerate(frames) if i and IS_ADAPTER.match(each.f_code.co_name)]
        return Context(where, [loop for _, loop in told if loop], max(inner, default=0))


class _CountTurns(ast.NodeTransformer):
    """Has each loop count its turns."""

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        count = ast.Call(ast.Name(TURNS, ast.Load()), [ast.Constant(node.lineno), node.iter], [])
        node.iter = ast.fix_missing_locations(ast.copy_location(count, node.iter))
        return node


def _list_frames(frame: FrameType | None) -> list[FrameType]:
    """The calls of references that are being made, the outermost first."""
    found: list[FrameType] = []
    while frame is not None and TURNS in frame.f_builtins:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _find_position(frame: FrameType) -> Span:
    """Where in its file the call stands that a frame is making."""
    line, end, column, stop = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return line or 0, end or 0, column or 0, stop or 0


def _is_step(value: Any, named: Named) -> bool:
    """Tell whether a value is a step: a tensor or a fraction, and a whole number if a comment names it."""
    return isinstance(value, Tensor | float) or (type(value) is int and named.is_written)


def _is_same(one: Value, other: Value) -> bool:
    """Tell whether two values are the same tensor; of single numbers that may be chance."""
    x, y = one.tensor, other.tensor
    is_like = x.shape == y.shape and x.dtype == y.dtype and x.numel() > 1
    return is_like and one.digest == other.digest and torch.equal(x, y)


@cache
def _load_references() -> _References:
    put_root_on_path()
    return _References()


@dataclass(frozen=True)
class Reference:
    """The right program of an adapter of a problem."""

    problem: str
    adapter: str

    def load(self) -> Any:
        """The observed function, which this imports if it is the first one of its problem."""
        return _load_references().load(f"{PROBLEMS}.{self.problem}.{REFERENCE}")[self.adapter]

    def answer(self, arguments: Mapping[str, Any]) -> Any:
        """The right answer, computed in float64."""
        with in_float64():
            return self.load()(**{name: in_dtype(x, torch.float64) for name, x in arguments.items()})

    def take_steps(self, arguments: Mapping[str, Any]) -> Steps:
        """The steps on the arguments of a call, in float64."""
        own = {
            name: x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
            for name, x in arguments.items()
        }
        steps = Steps(arguments=Arguments(list_leaves(own)))
        for name, x in arguments.items():
            if type(x) is float:
                word = f"`{name}`"
                steps.taken[word] = Step(word, as_value(x), x, PASSED, "", len(steps.taken), "", steps.arguments)
        with torch.random.fork_rng(devices=[]), _load_references().observing(steps):
            steps.answer = self.answer(own)
        return steps


def load_references(problem: str) -> dict[str, Reference]:
    """The references of a problem by their adapters; each is imported when it is first called."""
    return {adapter: Reference(problem, adapter) for adapter in list_adapters(problem)}


@cache
def list_counterparts() -> Sequence[str]:
    """List the words in the names of all steps that stand for one another, as what a function is called for in turn."""
    sources = [read_reference(problem) for problem in list_problem_folders()]
    found = {word for source in sources for pair in NamedFile(source).list_counterparts() for word in pair}
    return sorted(found, key=len, reverse=True)

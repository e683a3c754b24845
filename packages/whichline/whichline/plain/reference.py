"""A reference in ordinary code: each value that it computes is a checkpoint, named by its variable or its text.

A call of a function that has a reference becomes a test of the engine, which compares it with the reference.
"""

import ast
import inspect
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy
import torch
from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer
from whichline.engine.suite import Suite, Test
from whichline.locate.calls import judge_calls
from whichline.locate.checkpoints import Arguments, Checkpoints, Step, list_leaves
from whichline.locate.named import Span, span_of
from whichline.locate.pairs import Pair, Pairs
from whichline.locate.probe import Expression, Recorder, is_plain
from whichline.locate.run import Runner, copy_tensors
from whichline.locate.source_location import read_tree
from whichline.locate.trace import Trace
from whichline.locate.values import Value, as_value, find_layout, identify, is_equal
from whichline.plain.functions import Followed, Functions, Paired
from whichline.plain.parts import ANSWER, copy_parts, is_right, list_arguments, list_outputs, put_together, take_apart

LONGEST = 48  # characters of an expression's text that is its name
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
TOGETHER = "each time"  # names the values of all events, as one tensor
ASK = "?"  # makes a checkpoint count as one that may be skipped


class Taken(dict[str, Step]):
    """Checkpoints by name; that of a single call is also found under the names that several calls have."""

    def get(self, name: str, default: Any = None) -> Any:
        base, _, time = name.rpartition(", ")
        if name in self or base not in self or not (time == TOGETHER or time.startswith("call ")):
            return super().get(name, default)
        step = self[base]
        return replace(step, tensor=step.tensor[None]) if time == TOGETHER else step


@dataclass
class PlainCheckpoints(Checkpoints):
    """The checkpoints of one call, and its result."""

    is_partial = True
    came: Any = None  # the result itself, which may hold several tensors
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)  # by checkpoint: the reference's file and line
    error: Exception | None = None  # that the reference raised
    outputs: dict[str, Tensor] = field(default_factory=dict)  # the tensors and numbers of the result, by name
    functions: set[str] = field(default_factory=set)  # that ran
    drawn: set[str] = field(default_factory=set)  # the modules from whose random numbers it drew
    unchanged: set[str] = field(default_factory=set)  # the parts of its arguments that it never changes, by name
    paired: Paired | None = None  # the function that should do the same

    def __post_init__(self) -> None:
        vars(self)["taken"] = Taken()

    def has_run(self, adapter: str) -> bool:
        return adapter.rpartition(".")[2] in self.functions

    def give_answer(self, dtype: torch.dtype) -> Any:
        """Return the result as the code's function would."""
        parts: dict[str, Any] = {}
        came = next(iter(self.outputs.values())) if self.paired and self.paired.is_bare else self.came
        form = take_apart(came, ANSWER, parts)
        grafted = {name: self.arguments.graft(x) for name, x in parts.items()}
        return put_together(form, {name: x.clone() if isinstance(x, Tensor) else x for name, x in grafted.items()})


@dataclass(frozen=True)
class PlainReference:
    """The function of a reference that does what one of the code should do."""

    paired: Paired
    followed: Followed
    others: Mapping[CodeType, Paired]

    def compute_checkpoints(self, arguments: Mapping[str, Any], noting: bool = True) -> PlainCheckpoints:
        """Compute the checkpoints on a call's arguments, in their dtypes; none if the reference raises.

        Without `noting`, compute only the result. In a later call of an object, only that call is recorded.
        """
        is_later = bool(self.paired.given) and self.paired.has_calls_before(arguments)
        own = {name: _own(x) for name, x in arguments.items()}
        steps = PlainCheckpoints(arguments=Arguments(list_leaves(own)), paired=self.paired)
        recorder = Recorder(noting=noting and not is_later)
        try:
            with self.followed.run(recorder):
                recorder.begin()
                bound = self.paired.write(own, is_reference=True)
                bound.arguments.update({name: self._find_right(value) for name, value in bound.arguments.items()})
                recorder.noting = noting
                before = copy_tensors(given := list_arguments(bound.arguments))
                steps.arguments.leaves = [given.get(name, x) for name, x in own.items() if list_leaves({name: x})]
                states = list_drawn()
                steps.came = self.paired.call_right(bound)
                steps.drawn = {name for name, state in list_drawn().items() if state != states[name]}
                recorder.end()
        except Exception as error:
            steps.error = error
            return steps
        after = list_arguments(bound.arguments)
        self.paired.changed |= {name for name, x in after.items() if not is_equal(x, before.get(name))}
        steps.unchanged = after.keys() - self.paired.changed
        outputs = steps.outputs = list_outputs(steps.came, bound.arguments, self.paired.changed)
        if not noting:
            return steps
        collect_steps(steps, recorder, self.paired.reference[1], self.paired.kind is not None)
        numbers = {f"`{name}`": x for name, x in arguments.items() if type(x) is float}
        for name, x in {**self.paired.list_past(arguments), **numbers}.items():
            add_step(steps, name, x)
        add_outputs(steps)
        tensors = tuple(outputs.values())
        steps.answer = tensors[0] if len(tensors) == 1 else tensors
        return steps

    def _find_right(self, value: Any) -> Any:
        """Replace an argument that is a function by its reference."""
        paired = self.others.get(inspect.unwrap(value).__code__) if isinstance(value, FunctionType) else None
        return paired.right if paired else value


def list_drawn() -> dict[str, Hashable]:
    """Return the states of the random numbers, by the module that draws them."""
    of_numpy = pickle.dumps(numpy.random.get_state(legacy=False))  # has arrays
    return {"torch": torch.get_rng_state().numpy().tobytes(), "numpy.random": of_numpy, "random": random.getstate()}


class PlainRunner(Runner):
    """Runs tests of a plain suite."""

    def is_connecting(self, file: str) -> bool:
        return Path(file).stem == "adapters"


def _own(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.detach().requires_grad_() if x.requires_grad else x.clone()


def add_step(steps: Checkpoints, name: str, x: Any, series: str = "", turns: tuple[int, ...] = ()) -> None:
    steps.taken[name] = Step(name, as_value(x), x, ASK, "", len(steps.taken), series, steps.arguments, turns)


def add_outputs(steps: PlainCheckpoints) -> None:
    """Make the results the last checkpoints."""
    for name, x in steps.outputs.items():
        add_step(steps, f"the {name}", x)


def collect_steps(
    steps: PlainCheckpoints, recorder: Recorder, function: str, is_life: bool = False, is_whole: bool = False
) -> None:
    """Make checkpoints of all recorded values but the results; those in `function` name no function.

    With `is_life`, what an object counts from call to call is one, too; with `is_whole`, arguments, which tests pass.
    """
    outputs = steps.outputs
    has_fractions = any(isinstance(x, Tensor) and x.is_floating_point() for x in outputs.values())
    answers = {identify(x.detach()): f"the {name}" for name, x in outputs.items()}
    known = set[Hashable]()
    steps.functions = {place.function for place in recorder.order}
    times, most = Counter[Expression](), Counter(recorder.order)
    for place in recorder.order:
        time = times[place]
        times[place] += 1
        value, x = recorder.values[place][time], recorder.objects[place][time]
        if value is None or type(value) is bool or not _is_computed(place, is_whole):
            continue
        (variables, in_loops), span = _read(place.file), span_of(place.node)
        variable = variables.get(span, "")
        is_counted = len({*recorder.values[place]} if type(value) is int else ()) > 1
        if type(value) is int and (has_fractions or not variable) and not (is_counted and is_life):
            continue
        name = f"the reference's `{_shorten(variable or str(place))}`"
        name += f" in {place.function}" if place.function != function else ""
        if time + 1 == most[place] and (together := _put_together(recorder.values[place])) is not None:
            all_times = f"{name}, {TOGETHER}"
            is_answer = any(find_layout(Value(together), as_value(x)) for x in outputs.values())
            if not is_answer and identify(together) not in known and all_times not in steps.taken:
                add_step(steps, all_times, together)
                steps.lines[all_times] = place.file, place.line
        key, in_loop = identify(as_value(value).tensor), span in in_loops
        answer = answers.get(identify(x.detach()) if isinstance(x, Tensor) else key)
        if not in_loop and (key in known or answer):
            steps.lines |= {answer: (place.file, place.line)} if answer else {}
            continue
        known.add(key)
        series, turns = (f"{name}, turn", (time + 1,)) if in_loop else ("", ())
        if in_loop or most[place] > 1:
            name = f"{series or f'{name}, call'} {time + 1}"
        name = f"{name}, line {place.line}" if name in steps.taken else name
        add_step(steps, name, _as_it_was(x, value), series, turns)
        steps.lines[name] = place.file, place.line


def _shorten(text: str) -> str:
    """Cut the middle out of a long text: two expressions often differ only at the end."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _put_together(values: Sequence[Any]) -> Tensor | None:
    """Stack the values of all events of an expression, since other code may compute them at once."""
    tensors = [as_value(x).tensor for x in values if x is not None]
    if len(values) == 1 or len(tensors) < len(values) or len({x.shape for x in tensors}) > 1:
        return None
    return torch.stack(tensors)


def _is_computed(place: Expression, is_whole: bool) -> bool:
    """Tell whether an expression is no name and no constant; in a whole test, an argument counts, too."""
    if isinstance(place.node, ast.Name):
        return is_whole and place.is_read and str(place) in place.parameters
    return not (isinstance(place.node, ast.UnaryOp) and isinstance(place.node.operand, ast.Constant))


def _as_it_was(x: Any, value: Any) -> Any:
    """Return the value itself, with its graph, or its copy if it was changed later."""
    if not isinstance(x, Tensor) or x.is_complex():
        return value
    now = x.detach().to(value.device, value.dtype)
    return x if now.shape == value.shape and torch.equal(now.nan_to_num(), value.nan_to_num()) else value


@cache
def _read(file: str) -> tuple[dict[Span, str], set[Span]]:
    """Return the variables to which a file's expressions are assigned, and the expressions inside loops."""
    tree = read_tree(file)
    variables = {span_of(value): name for node in ast.walk(tree) for name, value in _list_assigned(node)}
    loops = (each for node in ast.walk(tree) if isinstance(node, LOOPS) for each in ast.walk(node))
    return variables, {span_of(each) for each in loops if isinstance(each, ast.expr | ast.stmt)}


def _list_assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.AugAssign):
        yield ast.unparse(node.target), node
    elif isinstance(node, ast.AnnAssign) and node.value:
        yield ast.unparse(node.target), node.value
    elif isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from ((ast.unparse(one), other) for one, other in zip(target.elts, value.elts, strict=False))
        elif not isinstance(target, ast.Tuple):
            yield ast.unparse(target), value


@dataclass(frozen=True)
class PlainPair(Pair):
    """A function of the code and its reference, which have the same arguments."""

    paired: Paired = field(kw_only=True)

    def read(self, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            parts = self.paired.read(parameters)
        except TypeError:  # the object is not finished
            return None
        return parts if all(is_plain(x) for x in parts.values() if isinstance(x, Tensor)) else None

    def see(self, answer: Any) -> Any:
        self.paired.is_bare = isinstance(answer, Tensor)
        outputs = tuple(list_outputs(answer, {}, ()).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def expect(self, right: Any) -> dict[str, Tensor]:
        return {str(i): x.detach() for i, x in enumerate(right if isinstance(right, tuple) else (right,))}


def list_fitting(runner: Runner, tests: Sequence[Test]) -> Pairs:
    """Return the pairs whose functions do the same: if the reference stands in, the caller's result gets no worse.

    A function that gets a mask from its caller, for instance, does something else than one that makes it.
    """
    calls, fitting = judge_calls(runner, tests[:1]), dict(runner.pairs)
    for name in calls.wrong:
        lending = replace(runner, lent={name})
        if _measure(lending.run(tests[0], {}, noting=False)) > _measure(runner.run(tests[0], {}, noting=False)):
            fitting = {key: [each for each in pairs if each.adapter != name] for key, pairs in fitting.items()}
    return fitting


def _measure(then: Trace) -> float:
    """Measure how far the result of a run is from the right one; 0 if it passes."""
    right = then.known.steps.answer
    if then.passed or not isinstance(then.came, Tensor) or not isinstance(right, Tensor):
        return 0.0 if then.passed else math.inf
    return float((then.came - right).abs().max()) if then.came.shape == right.shape else math.inf


@dataclass(frozen=True, kw_only=True)
class PlainSuite(Suite):
    """Tests of pytest, and calls that these make, as tests."""

    functions: Functions  # that have a reference
    run_item: Callable[..., BaseException | None]  # runs a test of pytest by its id, and returns its error

    def has_written(self, file: str) -> bool:
        return self.functions.code.is_students(file)

    def list_needed(self, problem: str) -> dict[str, str]:
        return dict.fromkeys(self.functions.paired, "")

    def bind(self, run: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        return named  # parts, whose names are no identifiers

    @cached_property
    def references(self) -> dict[str, PlainReference]:
        followed, paired = self.functions.reference, self.functions.paired
        others = {each.code: each for each in paired.values()}
        return {name: PlainReference(each, followed, others) for name, each in paired.items()}

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs by file and name of the function, if its code shows its parameters."""
        known = (each for each in self.functions.paired.values() if each.has_right and each.is_found_by_code)
        return {each.key: [PlainPair(each.name, {}, paired=each)] for each in known}

    def pair_returned(self, value: Any, right: Any) -> None:
        """Pair a class that a function returns with the one that its reference returns."""
        if self.functions.pair_returned(value, right):
            for name in ("references", "pairs"):  # they are listed anew
                vars(self).pop(name, None)

    def make_item(self, id: str, is_anew: bool = False) -> Test:
        """Make a test of the engine that runs a test of pytest; if wanted, with all its fixtures made anew."""

        def run() -> None:
            with self.functions.routing(self._call):
                error = self.run_item(id, is_anew)
            if error is not None:
                raise error

        return Test(id, run, ("", 0))

    def make_test(self, name: str, problem: str, case: Case) -> Test:
        """Make a test of a function's result on the arguments of one call."""
        steps = self.references[case.call].compute_checkpoints(case.inputs)
        case = replace(case, expected={name: x.detach() for name, x in steps.outputs.items()})

        def check(case: Case) -> None:
            came = getattr(self.calls, case.call)(**case.inputs)
            parts = came if isinstance(came, tuple) else (came,)
            if len(parts) != len(case.expected):
                raise WrongAnswer(f"{len(parts)} values came, expected {len(case.expected)}")
            for (what, right), part in zip(case.expected.items(), parts, strict=True):
                if not is_right(part, right, case.inputs):
                    raise WrongAnswer(f"the {what} is wrong", answer=part, what=what)

        return Test(name, check, ("", 0), stored=lambda: case, problem=problem)

    def _call(self, paired: Paired, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a pytest test through the engine."""
        parts = paired.bind(args, kwargs)
        paired.given = args, kwargs
        paired.note(args, copy_parts(parts))
        getattr(self.calls, paired.name)(**parts)
        return paired.came

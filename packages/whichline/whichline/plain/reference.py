"""A reference in ordinary code: each value that it computes is a step, named by its variable or its own text."""

import ast
import linecache
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from whichline.plain.functions import Followed, Paired
from whichline.plain.parts import ANSWER, list_arguments, list_outputs, put_together, take_apart
from whichline.way.named import Span, span_of
from whichline.way.probe import Place, Recorder
from whichline.way.run import copy_tensors
from whichline.way.steps import Arguments, Step, Steps, list_leaves
from whichline.way.values import as_value, identify, is_equal

LONGEST = 48  # text of an expression that is its name
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
ASK = "?"  # any value may be missing where another one stands


@dataclass
class PlainSteps(Steps):
    """The steps of one call, and what came back as it was.

    Args:
        came: the answer, whatever holds its tensors.
        lines: by the name of a step, where the reference computes it.
        error: what the reference raised.
        outputs: the tensors and numbers of the answer, by name.
    """

    came: Any = None
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    error: Exception | None = None
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def give_answer(self, dtype: torch.dtype) -> Any:
        """The answer as the function of the code would give it."""
        parts: dict[str, Any] = {}
        form = take_apart(self.came, ANSWER, parts)
        grafted = {name: self.arguments.graft(x) for name, x in parts.items()}
        return put_together(form, {name: x.clone() if isinstance(x, Tensor) else x for name, x in grafted.items()})


@dataclass(frozen=True)
class PlainReference:
    """The function of a reference that does what one of the code should do."""

    paired: Paired
    followed: Followed

    def take_steps(self, arguments: Mapping[str, Any]) -> PlainSteps:
        """The steps on the arguments of a call, in the dtypes of these; none where the reference raises."""
        own = {name: _own(x) for name, x in arguments.items()}
        steps = PlainSteps(arguments=Arguments(list_leaves(own)))
        recorder = Recorder()
        bound = self.paired.write(own)
        before = copy_tensors(list_arguments(bound.arguments))
        try:
            right = self.paired.right
            with self.followed.run(recorder):
                recorder.begin()
                steps.came = right(*bound.args, **bound.kwargs)
                recorder.end()
        except Exception as error:
            steps.error = error
            return steps
        after = list_arguments(bound.arguments)
        self.paired.changed |= {name for name, x in after.items() if not is_equal(x, before.get(name))}
        outputs = steps.outputs = list_outputs(steps.came, bound.arguments, self.paired.changed)
        for name, x in arguments.items():
            if type(x) is float:
                _add(steps, f"`{name}`", x)
        _collect(steps, recorder, right.__name__, outputs)
        tensors = tuple(outputs.values())
        steps.answer = tensors[0] if len(tensors) == 1 else tensors
        return steps


def _own(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.detach().requires_grad_() if x.requires_grad else x.clone()


def _add(steps: Steps, name: str, x: Any, series: str = "", turns: tuple[int, ...] = ()) -> None:
    steps.taken[name] = Step(name, as_value(x), x, ASK, "", len(steps.taken), series, steps.arguments, turns)


def _collect(steps: PlainSteps, recorder: Recorder, function: str, outputs: Mapping[str, Tensor]) -> None:
    """Make steps of all values that were recorded, and last of what came back."""
    has_fractions = any(isinstance(x, Tensor) and x.is_floating_point() for x in outputs.values())
    answers = {identify(x.detach()) for x in outputs.values()}
    known = {identify(step.value.tensor) for step in steps.taken.values()}
    times: Counter[Place] = Counter()
    for place in recorder.order:
        time = times[place]
        times[place] += 1
        value, x = recorder.values[place][time], recorder.objects[place][time]
        if value is None or isinstance(place.node, ast.Name) or type(value) is bool or _is_constant(place.node):
            continue
        variables, in_loops = _read(place.file)
        span = span_of(place.node)
        variable = variables.get(span, "")
        if type(value) is int and (has_fractions or not variable):
            continue
        key = identify(as_value(value).tensor)
        in_loop = span in in_loops
        if not in_loop and (key in known or identify(x.detach() if isinstance(x, Tensor) else x) in answers):
            continue
        known.add(key)
        text = variable or str(place)
        name = f"the reference's `{text if len(text) <= LONGEST else text[:LONGEST] + '…'}`"
        name += f" in {place.function}" if place.function != function else ""
        series, turns = (f"{name}, turn", (time + 1,)) if in_loop else ("", ())
        name = f"{series} {time + 1}" if in_loop else name
        while name in steps.taken:
            name += ", again"
        _add(steps, name, _as_it_was(x, value), series, turns)
        steps.lines[name] = place.file, place.line
    for name, x in outputs.items():
        _add(steps, f"the {name}", x)


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _as_it_was(x: Any, value: Any) -> Any:
    """A value with its graph, unless it was changed later."""
    if not isinstance(x, Tensor) or x.is_complex():
        return value
    now = x.detach().to(value.device, value.dtype)
    return x if now.shape == value.shape and torch.equal(now.nan_to_num(), value.nan_to_num()) else value


@cache
def _read(file: str) -> tuple[dict[Span, str], set[Span]]:
    """The variables to which the expressions of a file are assigned, and the expressions in loops."""
    tree = ast.parse("".join(linecache.getlines(file)))
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

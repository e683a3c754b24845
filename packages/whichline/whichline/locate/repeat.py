"""Outputs that differ between runs: the expression at which two runs of one test diverge."""

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from whichline.engine.compare import WrongAnswer, listed
from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.breach import MOST, describe_breach, is_computed
from whichline.locate.cache_key import find_key
from whichline.locate.observed import Observed
from whichline.locate.probe import Expression
from whichline.locate.run import Call, Change, Experiment, Runner
from whichline.locate.trace import Trace
from whichline.locate.values import is_equal

KINDS = 3  # of tests that are run again
NAMED = 2  # names of kept state that a message lists

UNWRITTEN = "Which elements of this are set before it is read, and which are not?"
RANDOM = "Which parameters does the caller set, and which keep the numbers that they begin with?"
DRAWN = "What is drawn here at random, and when should it be?"
REMEMBERS = "What is kept from one call to the next, and what does it depend on?"


class _Unwritten(TorchDispatchMode):
    """Have torch fill new memory: floating-point numbers with `value`, others with zeros."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler for seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.name().startswith(("aten::empty", "aten::new_empty")):
            made.fill_(self.value if made.is_floating_point() or made.is_complex() else 0)
        return made


def find_unrepeatable(runner: Runner, failing: Sequence[Test]) -> Finding | None:
    """Find where an output reads unwritten memory, random numbers, or what an earlier call left behind."""
    experiment = Experiment(runner, failing, total=len(failing))
    kinds = {test.function: test for test in reversed(failing)}
    for test in list(kinds.values())[::-1][:KINDS]:
        is_answered = isinstance(runner.suite.ending(test), WrongAnswer)
        tells = (_find_unwritten, _find_random) if is_answered and _may_differ(runner, test) else ()
        for tell in (*tells, _find_kept):
            if found := tell(experiment, test):
                return found
    return None


def _may_differ(runner: Runner, test: Test) -> bool:
    """Tell whether an output depends on unwritten memory or on random numbers."""
    with _Unwritten(math.nan), _seed(runner, 1):
        other = runner.run(test, {}, noting=False)
    return not is_equal(runner.look(test).came, other.came)


def _find_unwritten(experiment: Experiment, test: Test) -> Finding | None:
    with _Unwritten(0.0):
        one = experiment.runner.run(test, {})
    with _Unwritten(math.nan):
        other = experiment.runner.run(test, {})
    if not (place := _find_source(experiment, one, other, lambda: _Unwritten(math.nan))):
        return None
    said = f"{int(other.came.isnan().sum() - one.came.isnan().sum())} of the {one.came.numel()} numbers of the answer "
    said += "come from this memory, to which nothing was written."
    return describe_breach(experiment, one, [place], "unwritten", [said], UNWRITTEN)


def _find_random(experiment: Experiment, test: Test) -> Finding | None:
    one = experiment.runner.look(test)
    with _seed(experiment.runner, 1):
        other = experiment.runner.run(test, {})
    if not (place := _find_source(experiment, one, other, lambda: _seed(experiment.runner, 1))):
        return None
    place = _find_maker(one, other, place)
    off = float((other.came.detach() - one.came.detach()).abs().max())
    said = f"This is random: with another seed the answer differs by up to {off:.2g}."
    is_layer = isinstance(other.objects[place][0], nn.Module)
    question = DRAWN if isinstance(place.node, ast.Call) and not is_layer else RANDOM
    return describe_breach(experiment, one, [place], "random", [said], question)


@contextmanager
def _seed(runner: Runner, seed: int) -> Iterator[None]:
    runner.seed = seed
    try:
        yield
    finally:
        runner.seed = 0


def _find_source(
    experiment: Experiment, one: Trace, other: Trace, again: Callable[[], AbstractContextManager[object]]
) -> Expression | None:
    """Find the first expression that differs between two runs although its operands do not.

    With its value of the first run, the second run must return what the first one did.
    """
    if not isinstance(one.came, Tensor) or is_equal(one.came, other.came):
        return None
    differs = [place for place in other.places if not _has_same_values(one, other, place)]
    roots = [place for place in differs if place in one.values and not {*other.list_operands(place)} & {*differs}]
    names = {place for place in roots if isinstance(place.node, ast.Name) and other.find_origin(place) is place}
    roots = [place for place in roots if is_computed(place) or place in names]
    inner, outer = [], list[list[Expression]]()
    for place in roots[:MOST]:
        (outer if any(other.list_inside(place)) else inner).append([place])
    together = [place for places in inner for place in places]  # such as tables of cosines and sines
    for places in (*inner, together, *outer):
        with again():
            then = experiment.run(other.test, {place: _put_values(one, place) for place in places})
        if places and is_equal(then.came, one.came):
            return places[0]
    return None


def _find_maker(one: Trace, other: Trace, place: Expression) -> Expression:
    """Find the call that makes the layer whose parameter an expression reads, unless something sets another one."""
    beside = [each for each in other.places if (each.file, each.function) == (place.file, place.function)]
    read = [each for each in beside if isinstance(each.node, ast.Attribute) and not other.list_operands(each)]
    read = [each for each in read if isinstance(other.objects[each][0], Tensor)]
    if not read or any(_has_same_values(one, other, each) for each in read):
        return place
    for each in other.places:
        layer = other.objects[each][0]
        own = layer.parameters(recurse=False) if isinstance(layer, nn.Module) else ()
        if any(x is parameter for parameter in own for x in other.objects[place]):
            return each
    return place


def _has_same_values(one: Trace, other: Trace, place: Expression) -> bool:
    before, after = one.values.get(place, ()), other.values[place]
    return len(before) == len(after) and all(map(is_equal, before, after))


def _put_values(trace: Trace, place: Expression) -> Change:
    """Replace the values of an expression by those of another run."""

    def change(call: Call, time: int, value: Any) -> Any:
        kept = trace.values[place][min(time, len(trace.values[place]) - 1)]
        if not isinstance(value, Tensor) or not isinstance(kept, Tensor):
            return kept
        kept = (torch.view_as_complex(kept.contiguous()) if value.is_complex() else kept).to(value.dtype)
        return nn.Parameter(kept) if isinstance(value, nn.Parameter) else kept

    return change


def _find_kept(experiment: Experiment, test: Test) -> Finding | None:
    """Find the expression that reads what an earlier call left behind, in a test that passes if it runs first."""
    runner = experiment.runner
    if not (one := runner.look(test)).passed:
        return None
    with runner.observed.keeping():
        for before in runner.suite.tests:
            if before.problem == test.problem and before != test:
                runner.run(before, {})
        if (other := runner.run(test, {})).passed:
            return None
        place = _find_source(experiment, one, other, nullcontext)
        kept = runner.observed.find_kept()
    if place and any(other.list_inside(place)):
        place = other.find_origin(place)
    if not (place := place or _find_reader(runner.observed, kept)):
        return None
    said = "This value is left over from an earlier call. Run first, the test passes."
    right, passing = "", list[Test]()
    if key := find_key(runner, one, experiment.failing):
        repair, passing = key
        place, right = repair.place, repair.words
        said = "Calls that need different values share this key: the test gets the value of an earlier call."
    where = f"It is kept in {listed(f'`{name}`' for name in kept)}." if len(kept) <= NAMED else ""
    return describe_breach(experiment, one, [place], "remembers", [said, where], REMEMBERS, right, passing)


def _find_reader(observed: Observed, kept: Sequence[str]) -> Expression | None:
    """The first use of a name of a module in some function."""
    nodes = ((at, each) for at, node in observed.definitions.items() for each in ast.walk(node))
    uses = ((at, each) for at, each in nodes if isinstance(each, ast.Name) and each.id in kept)
    return next((Expression(*at, each, each.id) for at, each in uses), None)

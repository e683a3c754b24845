"""Breaches of the contract: the replacements that prove them, and the findings that report them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.options import Option, choose_value
from whichline.locate.probe import Expression
from whichline.locate.run import Call, Change, Experiment, Patch, Runner
from whichline.locate.source_location import count_failing, show_place
from whichline.locate.trace import Trace

MOST = 24  # places that are tried for one breach


def prove(
    experiment: Experiment, changes: Mapping[Expression, Patch], also: Patch | None = None
) -> tuple[list[Expression], list[Test]]:
    """Find the fewest expressions whose replacements make tests pass, and these tests.

    Args:
        experiment: the tests that fail because of one breach, with their wrong numbers replaced.
        changes: for each place, the replacements that correct it; in the order of computation.
        also: replacements that are made with them.
    """

    def join(places: Collection[Expression]) -> Patch:
        return {**{at: change for place in places for at, change in changes[place].items()}, **(also or {})}

    passing = experiment.list_passing(join(changes)) if changes else []
    for place in list(changes)[:MOST] if len(changes) > 1 else []:
        if experiment.runner.is_spent:
            return [], []
        if experiment.run((passing or experiment.failing)[0], join([place])).passed:
            found = experiment.list_passing(join([place]))
            if len(found) >= len(passing):
                return [place], found
    needed = list(changes) if passing else []
    for place in needed[:MOST]:
        fewer = [each for each in needed if each is not place]
        if fewer and all(experiment.run(test, join(fewer)).passed for test in passing):
            needed = fewer
    return needed, passing


def describe_breach(
    experiment: Experiment,
    trace: Trace,
    places: Sequence[Expression],
    id: str,
    said: Sequence[str],
    question: str,
    right: str = "",
    passing: Sequence[Test] = (),
) -> Finding:
    """Report a breach at some expressions as a finding.

    Args:
        experiment: the tests that fail because of one breach.
        trace: of one of them.
        places: the first one is shown.
        id: of the breach.
        said: what was measured, and what it means.
        question: a tutor's question.
        right: the replacement that is the proof, "With float64 here".
        passing: the tests that pass with it.
    """
    place, problem = places[0], experiment.failing[0].problem
    count = count_failing(len(passing), experiment.total, "passes", "pass", more=" more" if experiment.patch else "")
    return Finding(
        problem,
        f"{problem}-{id}",
        tuple(each for each in said if each),
        likewise=tuple(dict.fromkeys(each.line for each in places if each.line != place.line)),
        proof=f"{right}, {count}." if passing else "",
        question=question,
        section=next((step.section for step in trace.steps.values() if step.section), ""),
        tests=tuple(test.name for test in passing or experiment.failing),
        **show_place(place.file, place.function, place.node, experiment.runner.suite.root),
    )


def put_step(trace: Trace, place: Expression, wide: Callable[[Tensor], Tensor] = lambda x: x) -> Change | None:
    """Replace an expression by the checkpoint that it equals, with its graph, in the dtype of `wide`; None if none."""
    match = trace.match(place)
    if not match or not all(name in trace.steps for name in match.names):
        return None
    option = Option(match.names, match.axes[0], is_sliced=match.together)

    def change(call: Call, time: int, value: Any) -> Any:
        value, steps = wide(value) if isinstance(value, Tensor) else value, call.known.steps.taken
        with torch.enable_grad():  # what stands under no_grad gets a graph
            new = choose_value(option, steps, time, value)
        if new is None and isinstance(value, Tensor) and not value.ndim and (step := steps.get(match.names[0])):
            return step.value.tensor.to(value.dtype)  # a number, in a tensor
        return new

    return change


def put_operand(runner: Runner, operand: Expression, in_any_shape: bool = False, only: int | None = None) -> Change:
    """Replace the value of an expression, or only its value number `only`, by its operand, if the shapes agree."""

    def change(call: Call, time: int, value: Any) -> Any:
        if only not in (None, time):
            return value
        recorder = runner.observed.recorder
        made_of = recorder.objects.get(operand, [None])[-1] if recorder else None
        return made_of if isinstance(made_of, Tensor) and (in_any_shape or made_of.shape == value.shape) else None

    return change


def is_computed(place: Expression) -> bool:
    """Tell whether an expression computes its value; a name only refers to one."""
    return hasattr(place.node, "func") or hasattr(place.node, "op") or hasattr(place.node, "value")


def name_places(places: Sequence[Expression]) -> str:
    counts = {1: "here", 2: "in both places"}
    return counts.get(len(places), f"in all {len(places)} places")

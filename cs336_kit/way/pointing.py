"""Pointing: of a change that makes tests pass, the place that a tutor would point at, and what is different there."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from cs336_kit.way.changes import list_later, list_siblings
from cs336_kit.way.difference import Difference, tell_difference
from cs336_kit.way.options import Option, choose_value, list_options
from cs336_kit.way.probe import Place
from cs336_kit.way.run import Patch, Trial
from cs336_kit.way.trace import Trace
from cs336_kit.way.values import as_value, is_near

NEAREST = 8  # steps that may be missing before an expression


def point(trial: Trial, trace: Trace, change: Patch, difference: Difference) -> tuple[Patch, Difference]:
    """The place that a tutor would point at: the end of a chain of constructors, or the operand that lacks a step.

    Args:
        trial: the tests that pass with the change.
        trace: a run without it.
        change: what was put where.
        difference: of the first place from that.
    """
    if len(change) > 1:
        return change, difference
    ((place, option),) = change.items()
    if (further := _follow_maker(trial, trace, place, option)) != change:
        change, difference = further, compare_with_change(trace, further)
        ((place, option),) = change.items()
    for operand in trace.made_of(place):
        for missing in _list_missing(trace, operand):
            if option.names != missing[next(iter(missing))].names and _is_missing(trial, missing, place, option):
                return missing, _tell_missing(trace, operand, missing)
    return change, difference


def _follow_maker(trial: Trial, trace: Trace, place: Place, option: Option) -> Patch:
    """Of what a constructor begins, `torch.ones(n, n).tril(1)`, the end."""
    while trace.is_maker(place):
        around = [each for each in trace.places if place in trace.made_of(each) and not trace.is_right(each)]
        options = [each for outer in around[:1] for each in list_options(trace, outer) if each.names == option.names]
        proved = [each for each in options if trial.all_pass({around[0]: each})]
        if not proved:
            break
        place, option = around[0], proved[0]
    return {place: option}


def _list_missing(trace: Trace, operand: Place) -> Iterator[Patch]:
    """Steps that may be wanted where an operand is, there or where it was made."""
    siblings = [each for each in list_siblings(trace, operand) if trace.steps[each.names[0]].ask]
    for option in dict.fromkeys((*siblings, *list_later(trace, operand, NEAREST))):
        yield from ({place: option} for place in dict.fromkeys((trace.only_origin(operand), operand)))


def _is_missing(trial: Trial, change: Patch, place: Place, option: Option) -> bool:
    """Tell whether a step where a right operand is makes the tests pass, by making right what was found."""
    then = trial.run(trial.failing[0], change)
    match = then.match(place)
    return then.passed and bool(match and match.names[0] == option.names[0]) and is_known(trial, change)


def is_known(trial: Trial, change: Patch) -> bool:
    """Tell whether all tests pass with a change, and the expression is right, as something else, without it."""
    place = next(iter(change))
    return trial.all_pass(change) and all(trial.run(test).is_right(place) for test in trial.failing)


def find_instead(trial: Trial, roots: Sequence[tuple[Trace, Place]]) -> Iterator[tuple[Trace, Patch, Difference]]:
    """The first right value, of those that roots are made of, where its sibling makes all tests pass."""
    operands: dict[Place, Trace] = {}
    todo = [(trace, each) for trace, root in roots for each in trace.made_of(root)]
    while todo:
        trace, operand = todo.pop(0)
        if operand not in operands:
            operands[operand] = trace
            todo += [(trace, each) for each in trace.made_of(operand)]
    for operand, trace in operands.items():
        for option in list_siblings(trace, operand):
            for place in dict.fromkeys((trace.origin(operand), operand)):
                if is_known(trial, {place: option}):
                    yield trace, {place: option}, _tell_missing(trace, operand, {place: option})
                    return


# What is different.


def compare_with_change(trace: Trace, change: Patch) -> Difference:
    """Say how the first of the places of a change differs from what is put there, the first time that it does."""
    (place, option), *others = change.items()
    values = trace.value(place)
    time = min(trace.first_wrong(place), len(values) - 1)
    value = as_value(values[time]).tensor
    step = trace.steps.get(option.names[min(time, len(option.names) - 1)])
    if step is None:
        return Difference("is not what it should be", False)
    right = choose_value(option.as_is, trace.steps, time, values[time])
    if not isinstance(right, Tensor) or isinstance(values[time], float | int):
        right = step.value.tensor
    if (match := trace.match(place)) and others and trace.match(others[0][0]):
        return Difference(f"is {match.names[0]}; expected {step.name}, and the other way round", True)
    known = {name: each for name, each in trace.known.items() if each is not step.value}
    difference = tell_difference(value, right.detach(), step.name, known)
    if not difference.is_simple and _is_operand(trace, place, time, right):
        return Difference(f"is a step too many: what goes in is already {step.name}", True, is_extra=True)
    return difference


def _is_operand(trace: Trace, place: Place, time: int, right: Tensor) -> bool:
    """Tell whether what should come out of an expression is what goes in."""
    for operand in trace.made_of(place):
        values = trace.value(operand)
        value = values[min(time, len(values) - 1)]
        if isinstance(value, Tensor) and value.ndim and value.shape == right.shape and is_near(value, right.detach()):
            return True
    return False


def _tell_missing(trace: Trace, operand: Place, change: Patch) -> Difference:
    ((_, option),) = change.items()
    match = trace.match(operand)
    assert match is not None
    if match.names == option.names:
        return compare_with_change(trace, {operand: option})
    return Difference(f"is {match.names[0]}; expected {option.names[0]}", True)

"""Causes: values upstream of a first divergence that equal a checkpoint, but where another one belongs.

Examples are keys in the place of the values, scores that were never scaled, and the size of another axis. Such a value
looks right, so the first divergence comes later. A cause is proved if tests pass with the value that belongs there.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from whichline.engine.suite import Test
from whichline.locate.candidates import (
    count_missing,
    list_instead,
    list_missing,
    list_missing_upstream,
    list_numbers,
    list_siblings,
    list_swaps,
)
from whichline.locate.difference import find_other
from whichline.locate.options import Option, Options, list_options, list_shifted
from whichline.locate.probe import Expression
from whichline.locate.run import Experiment, copy
from whichline.locate.trace import Trace
from whichline.locate.values import as_value, find_layout

MOST = 0.75  # of the tests
ROOTS = 2  # in which a missing step is looked for


def follow_constructors(experiment: Experiment, trace: Trace, place: Expression, option: Option) -> Options:
    """Find the end of what a constructor begins, `torch.ones(n, n).tril(1)`, where the same step is proved."""
    while trace.is_constructor(place):
        around = [each for each in trace.places if place in trace.list_operands(each) and not trace.is_right(each)]
        options = [each for outer in around[:1] for each in list_options(trace, outer) if each.names == option.names]
        proved = [each for each in options if experiment.all_pass({around[0]: each})]
        if not proved:
            break
        place, option = around[0], proved[0]
    return {place: option}


def find_cause(experiment: Experiment, trace: Trace, root: Expression, wanted: Option) -> Options | None:
    """Find a number, or an operand that lacks a step, with which the root is what it should be and all tests pass."""
    mends = partial(_mends, experiment, root, wanted)
    for number in filter(mends, list_numbers(trace, root)):
        if not any(map(mends, list_shifted(number))):
            return number
    missing = (each for each in list_missing(trace, root) if next(iter(each.values())).names != wanted.names)
    if not (change := next(filter(mends, missing), None)):
        return None
    if further := _follow_siblings(trace, change, mends):
        return further
    known = (each for each in list_missing_upstream(trace, root) if is_known(experiment, each))
    return min([change, *known], key=partial(count_missing, trace))


def find_cause_in_most(
    experiment: Experiment, trace: Trace, root: Expression, wanted: Option
) -> tuple[Options, list[Test]] | None:
    """Find a right value where a later step makes the root right in most tests, and these tests."""
    first = experiment.only(experiment.failing[:1])
    for change in filter(partial(_mends, first, root, wanted), list_missing_upstream(trace, root)):
        passing = [test for test in experiment.failing if is_known(experiment.only([test]), change)]
        if len(passing) >= MOST * len(experiment.failing):
            return change, passing
    return None


def find_common_cause(
    experiment: Experiment, roots: Sequence[tuple[Trace, Expression]], missing: bool
) -> tuple[Trace, Options] | None:
    """Find a right value that is used in several places, where its sibling, or a later step, makes all tests pass.

    Args:
        experiment: the tests.
        roots: the first divergences, with runs in which they are.
        missing: whether later steps are tried.
    """
    for trace, root in roots:
        swapped = (each for each in list_swaps(trace) if is_known(experiment, each))
        if change := _find_instead(experiment, trace, root) or next(swapped, None):
            return trace, change
    for trace, root in roots[:ROOTS] if missing else ():
        for change in list_missing_upstream(trace, root):
            if is_known(experiment, change):
                return trace, change
    return None


def is_by_chance(experiment: Experiment, trace: Trace, change: Options) -> bool:
    """Tell whether a number is put in the first place of a change, and another one makes all tests pass as well."""
    return trace.is_number(next(iter(change))) and any(map(experiment.all_pass, list_shifted(change)))


def is_known(experiment: Experiment, change: Options) -> bool:
    """Tell whether all tests pass with a change, and the expressions are right, as something else, without it."""
    if experiment.runner.is_spent:
        return False
    for test in experiment.failing:
        before = experiment.run(test)
        if not all(map(before.is_right, change)) or not experiment.passes(test, change):
            return False
    return not _pass_with_copies(experiment, change)


def _pass_with_copies(experiment: Experiment, change: Options) -> bool:
    """Tell whether copies do as well in the places of a change: then the tensors are wrongly shared, not wrong."""
    failing = [test for test in experiment.failing if not experiment.run(test).passed][:1]
    return any(experiment.run(test, dict.fromkeys(change, copy)).passed for test in failing)


def _mends(experiment: Experiment, root: Expression, wanted: Option, change: Options) -> bool:
    """Tell whether a change makes a root what it should be, and all tests pass."""
    first = experiment.failing[0]
    if (
        experiment.runner.is_spent
        or not experiment.passes(first, change)
        or not _is_step(experiment.run(first, change), root, wanted.names[0])
    ):
        return False
    return is_known(experiment, change)


def _is_step(trace: Trace, place: Expression, name: str) -> bool:
    """Tell whether an expression is a step, or another one that is the same: of block 1, or of all, if there is one."""
    match = trace.match(place)
    if not match or name not in trace.steps:
        return False
    return match.names[0] == name or find_layout(as_value(trace.value(place)[0]), trace.steps[name].value) is not None


def _follow_siblings(trace: Trace, change: Options, mends: Callable[[Options], bool]) -> Options | None:
    """Find where the keys came in the place of the values: `v = x @ wk.T`."""
    further = None
    while True:
        operands = [each for each in trace.list_operands(trace.find_origin(next(iter(change)))) if each not in change]
        changes: Iterator[Options] = (
            {place: sibling}
            for each in operands
            for sibling in list_siblings(trace, each)
            for place in dict.fromkeys((trace.find_sole_origin(each), each))
        )
        if not (found := next(filter(mends, changes), None)):
            return further
        change = further = found


def _find_instead(experiment: Experiment, trace: Trace, root: Expression) -> Options | None:
    """Find a right value that a root is made of, where its sibling makes all tests pass: the first that is one."""
    is_cause, change = partial(is_known, experiment), None
    while further := next(filter(is_cause, list_instead(trace, next(iter(change)) if change else root)), None):
        change = _follow_call(experiment, trace, further) or further
    return change


def _follow_call(experiment: Experiment, trace: Trace, change: Options) -> Options | None:
    """Find what is given for a parameter in that one of several calls in which it is not what it should be."""
    ((place, option),) = change.items()
    time = find_other(trace, place, option)
    given = trace.find_given(place, time)
    if not given or len(option.names) == 1:
        return None
    change = {given: Option((option.names[time],), option.axes)}
    return change if is_known(experiment, change) else None


def find_one_call(trace: Trace, place: Expression, time: int) -> Expression | None:
    """Find the one of several calls of a function that gives back the n-th value of an expression in it."""
    value, times = trace.objects[place][time], Counter[Expression]()
    for each in trace.order:
        came = trace.objects[each][times[each]] if times[each] < len(trace.objects[each]) else None
        is_call = isinstance(each.node, ast.Call) and each.function != place.function and times[place] > time
        times[each] += 1
        if is_call and came is value and len(trace.objects[each]) == 1:
            return each
    return None

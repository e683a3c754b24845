"""Causes: values upstream of a first divergence that equal a checkpoint, but where another one belongs.

Examples: keys in place of the values, scores that were never scaled, the size of another axis. Such a value looks
right, so the first divergence comes later. A cause is proved if the tests pass with the value that belongs there.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse

import torch

from whichline.engine.suite import Test
from whichline.locate.candidates import (
    count_skipped,
    find_passed,
    is_low,
    list_confused,
    list_lowered,
    list_numbers,
    list_siblings,
    list_skipped,
    list_skipped_upstream,
    list_swaps,
    list_upstream,
)
from whichline.locate.options import Failed, Option, Options, list_shifted, list_turns, name_at
from whichline.locate.probe import Expression
from whichline.locate.run import Experiment, copy
from whichline.locate.trace import Trace
from whichline.locate.values import as_value, find_layout

MOST = 0.75  # of the tests
SEARCHED = 2  # first divergences upstream of which a skipped checkpoint is looked for


def find_cause(experiment: Experiment, trace: Trace, divergence: Expression, wanted: Option) -> Options | None:
    """Find the upstream number or operand whose replacement makes the divergence right and all tests pass."""
    if experiment.patch and _equals_checkpoint(experiment.run(trace.test), divergence, wanted.names[0]):
        return None  # other replacements make it right
    if number := _find_number(experiment, trace, divergence, wanted):
        return number
    corrects = partial(_corrects, experiment, divergence, wanted)
    is_hidden = bool(experiment.patch) and experiment.passes(experiment.failing[0], {})  # then passing shows nothing
    is_cause = corrects if is_hidden else partial(is_known, experiment)
    if divergence.is_read and (confused := _find_confused(corrects, trace, divergence)):
        return confused
    if low := next(filter(corrects, list_lowered(trace, divergence)), None):
        return _follow_equal(is_cause, trace, low) or low
    skipped = (each for each in list_skipped(trace, divergence) if next(iter(each.values())).names != wanted.names)
    if not (change := next(filter(corrects, skipped), None)):
        return None
    if further := _follow_siblings(trace, change, corrects):
        return further
    if next(iter(change.values())).axes is None and (swap := next(filter(corrects, list_swaps(trace)), None)):
        return swap  # a product of two parts that are exchanged is the right one, transposed
    known = filter(is_cause, list_skipped_upstream(trace, divergence))
    best = min([change, *known], key=partial(_rank, trace))
    return _follow_equal(is_cause, trace, best) or best


def _find_number(experiment: Experiment, trace: Trace, divergence: Expression, wanted: Option) -> Options | None:
    """Find the upstream number whose replacement makes the divergence right, unless the next number does so, too."""
    corrects = partial(_corrects, experiment, divergence, wanted)
    numbers = filter(corrects, _list_passing(experiment, trace, list_numbers(trace, divergence)))
    return next((each for each in numbers if not any(map(corrects, list_shifted(each)))), None)


def _list_passing(experiment: Experiment, trace: Trace, changes: Iterator[Options]) -> Iterator[Options]:
    """List the changes of numbers with which the first test passes."""
    see, first, failed = partial(experiment.runner.see, noting=False), experiment.failing[0], Failed(trace)
    for change in filterfalse(failed.has, changes):
        patch = {**experiment.patch, **change}
        is_refused = see(first, patch, "refuses", lambda then: isinstance(then.error, TypeError))
        if experiment.passes(first, change):
            yield change
        else:
            failed.add(change, is_refused)


def _follow_equal(is_cause: Callable[[Options], bool], trace: Trace, change: Options) -> Options | None:
    """Find the most upstream value that equals the checkpoint, or has a very low number where another one has −inf."""
    place, option = next(iter(change.items()))
    known = [(each, match) for each in list_upstream(trace, place) if (match := trace.match(each))]
    alike = [(each, match) for each, match in known if match.names == option.names or is_low(trace, each, match)]
    alike.sort(key=lambda pair: (pair[0].is_read, trace.places.index(pair[0])))  # where it is made, before its names
    changes = ({each: replace(option, names=match.names, axes=match.axes[0])} for each, match in alike)
    return next(filter(is_cause, changes), None)


def _rank(trace: Trace, change: Options) -> tuple[bool, int, bool, bool]:
    """Rank causes: where the function computes what belongs there, another name is read, outside a helper."""
    place, option = next(iter(change.items()))
    skipped, is_read = count_skipped(trace, change)
    here = [each for each in trace.places if (each.file, each.function) == (place.file, place.function)]
    wanted = {*option.names, *list_turns(trace.steps, option.names[0])}
    is_made = any(found[0] in wanted for each in here for x in trace.values[each] if (found := trace.find(x)))
    return not is_made, skipped, is_read != is_made, is_read and trace.find_argument(place) is not None


def find_cause_in_most(
    experiment: Experiment, trace: Trace, divergence: Expression, wanted: Option
) -> tuple[Options, list[Test]] | None:
    """Find an upstream value where a later checkpoint makes the divergence right in most tests; return these, too."""
    first = experiment.only(experiment.failing[:1])
    for change in filter(partial(_corrects, first, divergence, wanted), list_skipped_upstream(trace, divergence)):
        passing = [test for test in experiment.failing if is_known(experiment.only([test]), change)]
        if len(passing) >= MOST * len(experiment.failing):
            return change, passing
    return None


def find_common_cause(
    experiment: Experiment, divergences: Sequence[tuple[Trace, Expression]], skipped: bool
) -> tuple[Trace, Options] | None:
    """Find a value, used in several places, where −inf, a sibling or (if asked) a later checkpoint is right."""
    is_cause = partial(is_known, experiment)
    for trace, divergence in divergences:
        low, swapped = (filter(is_cause, each) for each in (list_lowered(trace, divergence), list_swaps(trace)))
        if change := next(low, None) or _find_confused(is_cause, trace, divergence) or next(swapped, None):
            return trace, change
    for trace, divergence in divergences[:SEARCHED] if skipped else ():
        for change in sorted(list_skipped_upstream(trace, divergence), key=partial(_rank, trace)):
            if is_cause(change):
                return trace, _find_number(experiment, trace, *next(iter(change.items()))) or change
    return None


def is_by_chance(experiment: Experiment, trace: Trace, change: Options) -> bool:
    """Tell whether a change puts in a number, and the next number makes all tests pass as well."""
    return trace.is_number(next(iter(change))) and any(map(experiment.all_pass, list_shifted(change)))


def is_known(experiment: Experiment, change: Options) -> bool:
    """Tell whether all tests pass with a change, whose expressions equal other checkpoints without it."""
    if experiment.runner.is_spent:
        return False
    for test in experiment.failing:
        before = experiment.run(test)
        if not all(map(before.is_right, change)) or not experiment.passes(test, change):
            return False
    # If they pass with mere copies of the values, these are wrongly shared, and not wrong.
    failing = [test for test in experiment.failing if not experiment.run(test).passed][:1]
    return not any(experiment.run(test, dict.fromkeys(change, copy)).passed for test in failing)


def _corrects(experiment: Experiment, divergence: Expression, wanted: Option, change: Options) -> bool:
    """Tell whether a change makes a divergence equal its checkpoint, and all tests pass."""
    first = experiment.failing[0]
    if experiment.runner.is_spent or not experiment.passes(first, change):
        return False
    then = experiment.run(first, change)
    return _equals_checkpoint(then, divergence, wanted.names[0]) and is_known(experiment, change)


def _equals_checkpoint(trace: Trace, place: Expression, name: str) -> bool:
    """Tell whether an expression equals a checkpoint, if only because an earlier checkpoint has the same numbers."""
    match = trace.match(place)
    if not match or name not in trace.steps:
        return False
    return match.names[0] == name or find_layout(as_value(trace.value(place)[0]), trace.steps[name].value) is not None


def _follow_siblings(trace: Trace, change: Options, corrects: Callable[[Options], bool]) -> Options | None:
    """Follow a confused value upstream to where the confusion begins: `v = x @ wk.T`."""
    further = None
    while True:
        operands = [each for each in trace.list_operands(trace.find_origin(next(iter(change)))) if each not in change]
        changes: Iterator[Options] = (
            {place: sibling}
            for each in operands
            for sibling in list_siblings(trace, each)
            for place in dict.fromkeys((trace.find_sole_origin(each), each))
        )
        if not (found := next(filter(corrects, changes), None)):
            return further
        change = further = found


def _find_confused(is_cause: Callable[[Options], bool], trace: Trace, divergence: Expression) -> Options | None:
    """Find the most upstream value whose sibling makes all tests pass."""
    change = None
    while True:
        confused = list_confused(trace, next(iter(change)) if change else divergence)
        same = (each for each in confused if not change or not _inverts(trace, change, each))
        if not (further := next(filter(is_cause, same), None)):
            return change
        change = further


def _inverts(trace: Trace, change: Options, further: Options) -> bool:
    """Tell whether a mask becomes another one between two places, where it may be inverted once too often."""
    option, other = (next(iter(each.values())) for each in (change, further))
    return trace.steps[option.names[0]].value.tensor.dtype == torch.bool and option.names != other.names


def find_one_call(trace: Trace, place: Expression, time: int) -> Expression | None:
    """Find the call, of several, that returns the value an expression in the called function has the n-th time.

    If none returns just this value, it is the call during which it is computed.
    """
    value, times = trace.objects[place][time], Counter[Expression]()
    for each in trace.order:
        came = trace.objects[each][times[each]] if times[each] < len(trace.objects[each]) else None
        is_call = isinstance(each.node, ast.Call) and each.function != place.function and times[place] > time
        times[each] += 1
        if is_call and came is value and len(trace.objects[each]) == 1:
            return each
    return trace.find_caller(place, time)


def find_shown(trace: Trace, place: Expression, option: Option) -> tuple[Expression, ...]:
    """Find the call to show instead of a constant that it passes, or those in which a value is wrong, if not in all."""
    times = range(len(trace.value(place)))
    if len(times) == 1 or trace.is_number(place):
        call = trace.find_call(place) or trace.find_shorter_call(place)
        return tuple(filter(None, [call or find_passed(trace, place)]))
    match = trace.match(place)
    if match and len(match.names) == len(times):
        wrong = [time for time in times if match.names[time] != name_at(option, trace.steps, time)]
    else:
        wrong = [time for time in times if not trace.is_right_at(place, time)]
    find = trace.find_argument if place.is_read else partial(find_one_call, trace)
    calls = [call for time in wrong if (call := find(place, time))]
    return tuple(dict.fromkeys(calls)) if len(calls) == len(wrong) < len(times) else ()

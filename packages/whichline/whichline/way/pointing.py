"""Pointing: of a change that makes tests pass, the place that a tutor would point at, and what is different there."""

from collections.abc import Iterator, Sequence
from functools import partial

from torch import Tensor

from whichline.way.changes import list_later, list_siblings
from whichline.way.difference import Difference, tell_difference
from whichline.way.options import Option, Options, choose_value, list_options, name_at
from whichline.way.probe import Place
from whichline.way.run import Experiment, copy
from whichline.way.trace import Trace
from whichline.way.values import as_value, find_layout, is_near

NEAREST = 8  # steps that may be missing before an expression
MOST = 0.75  # of the tests
ROOTS, UPSTREAM, LATER = 2, 16, 4  # roots, what these are made of, and steps that are tried there


def point(experiment: Experiment, trace: Trace, change: Options, difference: Difference) -> tuple[Options, Difference]:
    """The place that a tutor would point at: the end of constructors, a number, an operand that lacks a step.

    Args:
        experiment: the tests that pass with the change.
        trace: a run without it.
        change: what was put where.
        difference: of the first place from that.
    """
    if len(change) > 1:
        return change, difference
    ((place, option),) = change.items()
    if (further := _follow_maker(experiment, trace, place, option)) != change:
        change, difference = further, compare_with_change(trace, further)
        ((place, option),) = change.items()
    if number := _find_number(experiment, trace, place, option):
        return number
    for missing in _list_missing(trace, place):
        wanted = next(iter(missing.values()))
        if option.names != wanted.names and _is_missing(experiment, missing, place, option):
            if sibling := _follow_sibling(experiment, trace, missing, place, option):
                return sibling
            nearest = min([missing, *_list_known(experiment, trace, place)], key=partial(_count_missing, trace))
            return nearest, _tell_missing(trace, nearest)
    return change, difference


def _follow_maker(experiment: Experiment, trace: Trace, place: Place, option: Option) -> Options:
    """Of what a constructor begins, `torch.ones(n, n).tril(1)`, the end."""
    while trace.is_maker(place):
        around = [each for each in trace.places if place in trace.made_of(each) and not trace.is_right(each)]
        options = [each for outer in around[:1] for each in list_options(trace, outer) if each.names == option.names]
        proved = [each for each in options if experiment.all_pass({around[0]: each})]
        if not proved:
            break
        place, option = around[0], proved[0]
    return {place: option}


def _find_number(
    experiment: Experiment, trace: Trace, root: Place, wanted: Option
) -> tuple[Options, Difference] | None:
    """A size, or a number made of sizes, where another one belongs: `width = y.shape[-1]`."""
    for operand in list_upstream(trace, root):
        if trace.is_number(operand) and trace.match(operand) and not operand.is_read:
            for option in list_options(trace, operand):
                if _is_missing(experiment, {operand: option}, root, wanted):
                    made = {trace.origin(operand): option}
                    change = made if _is_missing(experiment, made, root, wanted) else {operand: option}
                    return change, compare_with_change(trace, change)
    return None


def _list_missing(trace: Trace, root: Place) -> Iterator[Options]:
    """Steps that may be wanted where operands are, there or where they were made."""
    operands = trace.made_of(root)
    for operand in operands:
        siblings = [each for each in list_siblings(trace, operand) if trace.steps[each.names[0]].ask]
        for option in dict.fromkeys((*siblings, *list_later(trace, operand, NEAREST))):
            yield from ({place: option} for place in dict.fromkeys((trace.only_origin(operand), operand)))
    for i, first in enumerate(operands):
        for second in operands[i + 1 :]:
            for option in list_later(trace, first, NEAREST):
                alike = [each for each in list_later(trace, second, NEAREST) if each.is_like(option)]
                places = trace.origin(first), trace.origin(second)
                one, other = places if places[0] is not places[1] else (first, second)
                yield from ({one: option, other: each} for each in alike)


def _is_missing(experiment: Experiment, change: Options, place: Place, option: Option) -> bool:
    """Tell whether a step where a right operand is makes the tests pass, by making right what was found."""
    then = experiment.run(experiment.failing[0], change)
    return then.passed and _is_step(then, place, option.names[0]) and is_known(experiment, change)


def _is_step(trace: Trace, place: Place, name: str) -> bool:
    """Tell whether an expression is a step, or another one that is the same: of block 1, or of all, if there is one."""
    match = trace.match(place)
    if not match or name not in trace.steps:
        return False
    return match.names[0] == name or find_layout(as_value(trace.value(place)[0]), trace.steps[name].value) is not None


def _follow_sibling(
    experiment: Experiment, trace: Trace, change: Options, place: Place, option: Option
) -> tuple[Options, Difference] | None:
    """Find where the keys came in the place of the values: `v = x @ wk.T`."""
    further = None
    while True:
        operands = [each for each in trace.made_of(trace.origin(next(iter(change)))) if each not in change]
        changes = [
            {place: sibling}
            for each in operands
            for sibling in list_siblings(trace, each)
            for place in dict.fromkeys((trace.only_origin(each), each))
        ]
        change = next((each for each in changes if _is_missing(experiment, each, place, option)), {})
        if not change:
            return further
        further = change, _tell_missing(trace, change)


def is_known(experiment: Experiment, change: Options) -> bool:
    """Tell whether all tests pass with a change, and the expressions are right, as something else, without it."""
    is_right = all(before.is_right(place) for before in map(experiment.run, experiment.failing) for place in change)
    return is_right and experiment.all_pass(change) and not _pass_with_copies(experiment, change)


def list_upstream(trace: Trace, root: Place, most: int = 40) -> list[Place]:
    """List what an expression is made of, the nearest first, through names to where these were made."""
    found = dict.fromkeys(each for each in (trace.origin(root),) if each is not root)
    todo = [root, *found]
    while todo and len(found) < most:
        for operand in trace.made_of(todo.pop(0)):
            for each in (operand, trace.origin(operand)):
                if each not in found:
                    found[each] = None
                    todo.append(each)
    return list(found)


def find_instead(
    experiment: Experiment, roots: Sequence[tuple[Trace, Place]]
) -> Iterator[tuple[Trace, Options, Difference]]:
    """A right value, of those that roots are made of, where its sibling makes all tests pass: the first that is one."""
    for trace, root in roots:
        change: Options = {root: Option(())}
        while further := next(_list_instead(experiment, trace, next(iter(change))), None):
            change = further
        if root not in change:
            yield trace, change, _tell_missing(trace, change)
            return


def find_missing(
    experiment: Experiment, roots: Sequence[tuple[Trace, Place]]
) -> Iterator[tuple[Trace, Options, Difference]]:
    """A right value that several roots are made of, where a later step makes all tests pass: the scores, not scaled.

    Of several it is the one with the next step.
    """
    for trace, root in roots[:ROOTS]:
        if known := _list_known(experiment, trace, root):
            change = min(known, key=partial(_count_missing, trace))
            yield trace, change, _tell_missing(trace, change)


def find_missing_in_most(
    experiment: Experiment, trace: Trace, root: Place, wanted: Option
) -> tuple[Options, Difference, list[str]] | None:
    """A right value that a root is made of, where a later step makes the root right in most tests, and in which."""
    of_first = experiment.only(experiment.failing[:1])
    for change in sorted(_list_known(of_first, trace, root), key=partial(_count_missing, trace)):
        if not _is_missing(of_first, change, root, wanted):
            continue
        passing = [test.name for test in experiment.failing if is_known(experiment.only([test]), change)]
        if len(passing) >= MOST * len(experiment.failing):
            return change, _tell_missing(trace, change), passing
    return None


def _list_known(experiment: Experiment, trace: Trace, root: Place) -> list[Options]:
    """The right values that a root is made of, where a later step makes all tests pass."""
    return [
        {operand: option}
        for operand in list_upstream(trace, root, UPSTREAM)
        for option in list_later(trace, operand, LATER)
        if _count_missing(trace, {operand: option})[0] > 0 and is_known(experiment, {operand: option})
    ]


def _count_missing(trace: Trace, change: Options) -> tuple[int, bool]:
    """Count the steps between what an expression is and what is put there; of equals, one that is made comes first."""
    place, option = next(iter(change.items()))
    match, time = trace.match(place), _find_other(trace, place, option)
    reached = trace.steps[match.names[time]].order if match else 0
    return trace.steps[name_at(option, trace.steps, time)].order - reached, place.is_read


def _list_instead(experiment: Experiment, trace: Trace, root: Place) -> Iterator[Options]:
    for operand in list_upstream(trace, root):
        for option in list_siblings(trace, operand):
            if is_known(experiment, {operand: option}):
                yield _follow_call(experiment, trace, operand, option) or {operand: option}


def _follow_call(experiment: Experiment, trace: Trace, place: Place, option: Option) -> Options | None:
    """Find what is given for a parameter in that one of several calls in which it is not what it should be."""
    time = _find_other(trace, place, option)
    given = trace.find_given(place, time)
    change = {given: Option((option.names[time],), option.axes)} if given and len(option.names) > 1 else {}
    return change if change and is_known(experiment, change) else None


def _find_other(trace: Trace, place: Place, option: Option) -> int:
    """The first time that an expression is not the step that is put there."""
    match = trace.match(place)
    pairs = zip(match.names if match else (), option.names, strict=False)
    return next((time for time, (name, other) in enumerate(pairs) if name != other), 0)


# What is different.


def compare_with_change(trace: Trace, change: Options) -> Difference:
    """Say how the first of the places of a change differs from what is put there, the first time that it does."""
    (place, option), *others = change.items()
    values = trace.value(place)
    time = _find_different(trace, place, option)
    value = as_value(values[time]).tensor
    step = trace.steps.get(name_at(option, trace.steps, time))
    if step is None:
        return Difference("This is not the right value.", False)
    right = choose_value(option.as_is, trace.steps, time, values[time])
    if not isinstance(right, Tensor) or isinstance(values[time], float | int):
        right = step.value.tensor
    if (match := trace.match(place)) and others and trace.match(others[0][0]):
        return Difference(f"Expected {step.name}; found {match.names[0]}: the two are swapped.", True, is_extra=True)
    known = {name: each for name, each in trace.known.values.items() if each is not step.value}
    difference = tell_difference(value, right.detach(), step.name, known)
    if not difference.is_simple and _is_operand(trace, place, time, right):
        words = f"Expected {step.name}, unchanged: this step should not be here."
        return Difference(words, True, is_extra=True, is_needless=True, instead=difference.words)
    return difference


def _find_different(trace: Trace, place: Place, option: Option) -> int:
    """The first time that an expression is nothing that is known; of one after the other, not the right one."""
    values = trace.value(place)
    for time, value in enumerate(values if option.is_sliced or option.is_series else ()):
        right = choose_value(option.as_is, trace.steps, time, value)
        if not isinstance(value, Tensor) or not isinstance(right, Tensor) or value.shape != right.shape:
            break
        if not is_near(value, right.detach()):
            return time
    return min(trace.first_wrong(place), len(values) - 1)


def _is_operand(trace: Trace, place: Place, time: int, right: Tensor) -> bool:
    """Tell whether what should come out of an expression is what goes in."""
    for operand in trace.made_of(place):
        values = trace.value(operand)
        value = values[min(time, len(values) - 1)]
        if isinstance(value, Tensor) and value.ndim and value.shape == right.shape and is_near(value, right.detach()):
            return True
    return False


def _tell_missing(trace: Trace, change: Options) -> Difference:
    (place, option), *_ = change.items()
    match = trace.match(place)
    time = _find_different(trace, place, option) if option.is_series else _find_other(trace, place, option)
    wanted = name_at(option, trace.steps, time)
    if match is None or match.names[time] == wanted:
        return compare_with_change(trace, {place: option})
    return Difference(f"Expected {wanted}; found {match.names[time]}.", True)


def _pass_with_copies(experiment: Experiment, change: Options) -> bool:
    """Tell whether copies do as well in the places of a change: then the tensors are wrongly shared, not wrong."""
    failing = [test for test in experiment.failing if not experiment.run(test).passed][:1]
    return any(experiment.run(test, dict.fromkeys(change, copy)).passed for test in failing)

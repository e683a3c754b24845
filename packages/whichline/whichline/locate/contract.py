"""Breaches of the contract of every function: dtype, digits, gradients, and unchanged arguments."""

import ast
from collections.abc import Iterator, Sequence

from whichline.engine.compare import WrongAnswer, listed
from whichline.engine.finding import Finding
from whichline.engine.result import Check
from whichline.engine.suite import Test
from whichline.locate.breach import describe_breach
from whichline.locate.digits import find_dtypes
from whichline.locate.gradients import find_gradients
from whichline.locate.probe import Expression
from whichline.locate.run import Call, Experiment, Patch, Runner
from whichline.locate.values import is_equal

WRITES = "in-place"
IN_PLACE = "Which operations make a new tensor, and which write into the one that was passed?"


def find_breaches(
    runner: Runner, failing: Sequence[Test], patch: Patch | None = None, of: int | None = None
) -> list[Finding]:
    """Find where the code breaks the contract, beside earlier replacements; `of` tests fail, if not these alone."""
    experiment = Experiment(runner, failing, patch or {}, of or len(failing))
    by_check: dict[Check, list[Test]] = {}
    for test in failing:
        trace = None if runner.is_spent or test.memory else experiment.run(test)
        if trace and isinstance(trace.error, WrongAnswer) and trace.steps and trace.places:
            by_check.setdefault(trace.error.check, []).append(test)
    return [finding for check, tests in by_check.items() for finding in _find_breach(experiment.only(tests), check)]


def _find_breach(experiment: Experiment, check: Check) -> Iterator[Finding]:
    if check in (Check.ANSWER, Check.OUTPUT):
        yield from find_dtypes(experiment)
    elif check is Check.GRADIENT:
        yield from filter(None, [find_gradients(experiment)])
    elif check is Check.INPUTS:
        yield from filter(None, [_find_written(experiment)])


def _find_written(experiment: Experiment) -> Finding | None:
    """Find the statement or the call that changes an argument."""
    written: dict[Expression, list[str]] = {}

    def watch(call: Call, place: Expression) -> None:
        if not written:
            changed = [name for name, x in call.given.items() if not is_equal(x, call.arguments[name])]
            written.update({place: changed} if changed else {})

    trace = experiment.run_anew(experiment.failing[0], watch)
    for place, names in written.items():
        if place.in_place or isinstance(place.node, ast.Call):
            said = f"This writes into {listed(f'`{name}`' for name in names)}, which the caller still holds."
            return describe_breach(experiment, trace, [place], WRITES, [said], IN_PLACE)
    return None

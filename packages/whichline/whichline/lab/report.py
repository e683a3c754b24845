"""A report on one call: the student's lines, each with a mark, and what is wrong with the output."""

import traceback
from collections.abc import Iterator
from typing import Any

import click
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from torch import Tensor

from whichline.checking.board import Lines
from whichline.engine.case import Case
from whichline.engine.compare import find_largest, name_dtype
from whichline.engine.result import Check
from whichline.engine.silence import silence
from whichline.lab.diagnosis import diagnose
from whichline.lab.student import Student, find_references
from whichline.locate.diagnose import observe
from whichline.locate.lines import FOLLOWS, RIGHT, UNKNOWN, WRONG, Line, MarkedLines, find_not_finite
from whichline.locate.observed import CannotFollowError
from whichline.locate.run import Runner
from whichline.locate.source_location import name_file
from whichline.locate.trace import Trace

COLOURS = {RIGHT: "green", WRONG: "bold red", FOLLOWS: "yellow", UNKNOWN: ""}
STORED = "the stored one"  # completes "Your answer matches"
SMALL = 8  # the most rows and columns of a matrix whose numbers are printed


def report_call(call: Case, student: Student, values: bool = False, right: str = STORED) -> Iterator[RenderableType]:
    """Report the lines of a call, where NaN or infinity first appeared, and the diagnosis; with `values`, each value.

    The expected output in words is `right`; only the stored one is right to the last digit.
    """
    diagnosis = diagnose(student, [call], last_digits=right == STORED)
    suite, (test,) = diagnosis.suite, diagnosis.suite.tests
    observed = observe(suite)
    with silence():
        error = suite.ending(test)
        try:
            observed.refresh()
        except CannotFollowError as why:
            raise click.ClickException(f"your lines cannot be marked: {why}") from None
    runner = Runner(suite, {call.call: find_references()[call.call]}, observed)
    trace = runner.run(test, {})  # only this run may print
    raised = {(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error and error.__traceback__)}
    marked = MarkedLines(trace, runner.observed, diagnosis.explanations, student.root, raised)
    inputs = [trace.find(x) for x in call.inputs.values() if isinstance(x, Tensor)]
    shown: set[Any] = {found[0] for found in inputs if found}
    for file, function, lines in marked.functions():
        yield Text(f"\n{name_file(file, student.root)}, in {function}", "bold")
        margin = min(len(line.text) - len(line.text.lstrip()) for line in lines)
        for line in lines:
            yield Group(_show_line(line, margin))  # outside of a group, rich would wrap it
            if values:
                yield Lines(_describe_values(trace, line, shown), "dim", margin=" " * 8)
    (result,) = diagnosis.results
    if not trace.order and result.check not in (Check.CALL, Check.NOT_WRITTEN):
        yield Text("\nNothing of this call can be followed: its code is in no file of yours.")
    yield Text("")
    if found := find_not_finite(trace):
        place, name = found
        of = f"line {place.line} of {name_file(place.file, student.root)}"
        yield Lines([f"{name} first appears in {of}: `{place}`"])
    if result.passed:
        yield Text(f"Your answer matches {right}. Nothing here looks wrong.")
        return
    if result.check not in (Check.CALL, Check.NOT_WRITTEN):
        yield Text(f"Your answer does not match {right}:\n")
    yield from diagnosis.describe()


def report_inputs(call: Case, values: bool = False) -> Iterator[RenderableType]:
    """Report the arguments, one below the other, and, with `values`, the numbers of small matrices."""
    yield Text(f"One call of {call.call}: {call.name}")
    yield Lines(_describe_inputs(call, values), margin="  ")


def _describe_inputs(call: Case, values: bool) -> Iterator[str]:
    given = {name: x for name, x in call.inputs.items() if x is not None}
    width = max(map(len, given))
    for name, x in given.items():
        yield f"{name:<{width}}  {_describe(x) if isinstance(x, Tensor) else x}"
        if values and isinstance(x, Tensor):
            yield from _write_matrix(x)


def _show_line(line: Line, margin: int) -> Text:
    shown = Text(f"{line.mark} {line.number:>4}  ", COLOURS[line.mark], no_wrap=True, overflow="ellipsis")
    return shown.append(line.text[margin:], "" if line.ran else "dim")


def _describe_values(trace: Trace, line: Line, shown: set[Any]) -> Iterator[str]:
    """Describe the values of a line at the first wrong event, and their checkpoints; print the same numbers once."""
    for place in line.places:
        match, time = trace.match(place), trace.find_first_wrong(place)
        name = match.names[min(time, len(match.names) - 1)].replace("a size", "") if match else ""
        times, time = len(trace.objects[place]), time - len(trace.value(place))  # the last time is −1
        x, kept = trace.objects[place][time], trace.values[place][time]
        if isinstance(x, bool) or (isinstance(x, Tensor) and not x.numel()):
            continue
        words = f"{'a slice of ' if match and match.together else ''}{name} "
        words += _describe(x, kept) if isinstance(x, Tensor) else f"{x:.4g}"
        yield words.strip() + f" (the first of {times} times)" * (times == -time > 1)
        key = name or id(x)
        if isinstance(kept, Tensor) and key not in shown:
            shown.add(key)
            yield from _write_matrix(kept)


def _write_matrix(x: Tensor) -> Iterator[str]:
    """The numbers of a tensor's first matrix, if it is small."""
    if x.ndim >= 2 and x.numel() and max(x.shape[-2:]) <= SMALL:
        if x.shape[:-2].numel() > 1:
            yield f"at {[0] * (x.ndim - 2)}:"
        for row in x.reshape(-1, *x.shape[-2:])[0].tolist():
            yield "".join(f"{x:9.4f}" if abs(x) < 1000 else f"{x:9.1e}" for x in row)


def _describe(x: Tensor, kept: Tensor | None = None) -> str:
    """Describe the shape, the dtype, the counts of NaN and infinity, and the smallest and the largest finite number.

    If these may have changed since, `kept` has the numbers of the time.
    """
    kind = f"{tuple(x.shape)} {name_dtype(x.dtype)}"
    x = x.detach() if kept is None else kept
    if not x.numel():
        return f"{kind}, no numbers"
    if x.dtype == torch.bool:
        return f"{kind}, {x.double().mean():.0%} True"
    finite, bad = x[x.isfinite()], ~x.isfinite()
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    if not bad.any():
        return f"{kind}, {bounds}"
    first = find_largest(bad.byte())
    return f"{kind}, {int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first at {first}; else {bounds}"

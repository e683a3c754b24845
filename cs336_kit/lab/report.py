"""A report on one call: the student's own lines, each with a mark, and what is wrong with the answer."""

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, jaxtyped
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch import Tensor

from cs336_kit.checking.board import Lines
from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name, place_of_largest
from cs336_kit.engine.result import Check
from cs336_kit.engine.silence import silence
from cs336_kit.lab.comparison import diagnose, set_beside_pytorch
from cs336_kit.lab.student import Student, find_steps, make_call, read_tensor
from cs336_kit.way.lines import FOLLOWS, RIGHT, UNKNOWN, WRONG, Line, MarkedLines, find_not_finite
from cs336_kit.way.probe import Probes
from cs336_kit.way.run import Runner
from cs336_kit.way.telling import name_file
from cs336_kit.way.trace import Trace
from cs336_kit.way.values import as_value

COLOURS = {RIGHT: "green", WRONG: "bold red", FOLLOWS: "yellow", UNKNOWN: ""}
SMALL = 8  # rows and columns of a matrix whose numbers are printed
CONTRACT: dict[str, Any] = {
    "Q": Float[Tensor, "*#batch queries d_k"],
    "K": Float[Tensor, "*#batch keys d_k"],
    "V": Float[Tensor, "*#batch keys d_v"],
    "mask": Bool[Tensor, "*#batch #queries #keys"],
}


def debug(
    Q: Any, K: Any, V: Any, mask: Any = None, *, attention: Callable[..., Tensor] | None = None, values: bool = False
) -> None:
    """Report one call of your attention, or of this one, line by line, as `cs336 debug` does.

    Q (..., queries, d_k), K (..., keys, d_k), V (..., keys, d_v) and mask are tensors or numpy arrays. With `values`,
    what is computed in each line is shown below it.
    """
    given = {"Q": Q, "K": K, "V": V} | ({} if mask is None else {"mask": mask})
    call = make_call("in a notebook", {name: read_tensor(x) for name, x in given.items()})
    Console(highlight=False).print(Group(*report_call(call, Student(attention), values)))


def report_call(call: Case, student: Student, values: bool = False) -> Iterator[RenderableType]:
    """Report the inputs, the lines, where NaN or infinity first appeared, and the diagnosis.

    A stored case has its right answer; that of any other call, which is one of attention, is PyTorch's.
    """
    yield Text(f"One call of {call.call}: {call.name}")
    yield Lines(_tell_inputs(call, values), margin="  ")
    if not call.expected:
        if misfit := explain_misfit(call):
            yield Lines([misfit], "yellow")
            return
        if bad := [name for name in "QKV" if not call.inputs[name].isfinite().all()]:
            yield Text(f"Look at what made {bad[0]}: with NaN or infinity in it, attention has no right answer.")
            return
    case = call if call.expected else set_beside_pytorch(call)
    diagnosis = diagnose(student, [case], last_digits=bool(call.expected))
    suite, (test,) = diagnosis.suite, diagnosis.suite.tests
    with silence():
        error = suite.ending(test)
    runner = Runner(suite, {call.call: find_steps()[call.call][1]}, Probes(suite.has_written))
    with runner.probes.on():  # what the code prints, it prints once
        trace = runner.run(test, {})
    raised = {(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error and error.__traceback__)}
    marked = MarkedLines(trace, runner.probes, diagnosis.explanations, student.root, raised)
    inputs = [trace.find(as_value(x)) for x in call.inputs.values() if isinstance(x, Tensor)]
    shown: set[Any] = {found[0] for found in inputs if found}
    for file, function, lines in marked.functions():
        yield Text(f"\n{name_file(file, student.root)}, in {function}", "bold")
        margin = min(len(line.text) - len(line.text.lstrip()) for line in lines)
        for line in lines:
            yield Group(_show_line(line, margin))  # alone, it would be wrapped
            if values:
                yield Lines(_tell_values(trace, line, shown), "dim", margin=" " * 8)
    (result,) = diagnosis.results
    if not trace.order and result.check not in (Check.CALL, Check.NOT_WRITTEN):
        yield Text("\nNothing of this call can be followed: its code is in no file of yours.")
    yield Text("")
    if found := find_not_finite(trace):
        place, name = found
        of = f"line {place.line} of {name_file(place.file, student.root)}"
        yield Lines([f"{name} first appears in {of}: `{place}`"])
    right = "the stored one" if call.expected else "PyTorch's own, in float64"
    if result.passed:
        yield Text(f"Your answer matches {right}. Nothing here looks wrong.")
        return
    if result.check not in (Check.CALL, Check.NOT_WRITTEN):
        yield Text(f"Your answer does not match {right}:\n")
    yield from diagnosis.tell()


def explain_misfit(call: Case) -> str:
    """Say why these cannot be arguments of attention; nothing if they can."""
    with jaxtyped("context"):  # in which each name of an axis has one size
        for name, x in call.inputs.items():
            contract = CONTRACT[name]
            if x is None or (x.numel() and isinstance(x, contract) and x.dtype in (call.Q.dtype, torch.bool)):
                continue
            of_mask = "boolean, True = may attend (`mask == 0` if yours is added to the scores)"
            dtype = of_mask if name == "mask" else "of one floating-point dtype with Q"
            shape = contract.dim_str.replace("*#batch", "...").replace("#", "").replace(" ", ", ")
            return (
                f"{name} {tuple(x.shape)} {dtype_name(x.dtype)} does not fit what is before it: it should be {dtype}, "
                f"and of the shape ({shape}). Is it transposed, or of another sequence?"
            )
    return ""


def _tell_inputs(call: Case, values: bool) -> Iterator[str]:
    """The arguments, one below the other, and the numbers of small matrices, if these are asked for."""
    given = {name: x for name, x in call.inputs.items() if x is not None}
    width = max(map(len, given))
    for name, x in given.items():
        yield f"{name:<{width}}  {_describe(x) if isinstance(x, Tensor) else x}"
        if values and isinstance(x, Tensor):
            yield from _write_matrix(x)


def _show_line(line: Line, margin: int) -> Text:
    shown = Text(f"{line.mark} {line.number:>4}  ", COLOURS[line.mark], no_wrap=True, overflow="ellipsis")
    return shown.append(line.text[margin:], "" if line.ran else "dim")


def _tell_values(trace: Trace, line: Line, shown: set[Any]) -> Iterator[str]:
    """Tell what came out in a line, the first time that it was wrong, and which step it is; its numbers but once."""
    for place in line.places:
        match, time = trace.match(place), trace.first_wrong(place)
        name = match.names[min(time, len(match.names) - 1)].replace("a size", "") if match else ""
        times, time = len(trace.objects[place]), time - len(trace.value(place))  # the last time is −1
        x, kept = trace.objects[place][time], trace.values[place][time]
        if isinstance(x, bool):
            continue
        words = f"{'a slice of ' if match and match.together else ''}{name} "
        words += _describe(x, kept) if isinstance(x, Tensor) else f"{x:.4g}"
        yield words.strip() + f" (the first of {times} times)" * (times == -time > 1)
        key = name or id(x)
        if isinstance(kept, Tensor) and key not in shown:
            shown.add(key)
            yield from _write_matrix(kept)


def _write_matrix(x: Tensor) -> Iterator[str]:
    """The first matrix, as a reader works it on paper, if it is small."""
    if x.ndim >= 2 and x.numel() and max(x.shape[-2:]) <= SMALL:
        if x.shape[:-2].numel() > 1:
            yield f"at {[0] * (x.ndim - 2)}:"
        for row in x.reshape(-1, *x.shape[-2:])[0].tolist():
            yield "".join(f"{x:9.4f}" if abs(x) < 1000 else f"{x:9.1e}" for x in row)


def _describe(x: Tensor, kept: Tensor | None = None) -> str:
    """Describe the shape, the dtype, the counts of NaN and infinity, and the smallest and the largest finite number.

    Args:
        x: the tensor.
        kept: its numbers, if they may be others now.
    """
    kind = f"{tuple(x.shape)} {dtype_name(x.dtype)}"
    x = x.detach() if kept is None else kept
    if x.dtype == torch.bool:
        return f"{kind}, {x.double().mean():.0%} True"
    finite, bad = x[x.isfinite()], ~x.isfinite()
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    if not bad.any():
        return f"{kind}, {bounds}"
    first = place_of_largest(bad.byte())
    return f"{kind}, {int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first at {first}; else {bounds}"

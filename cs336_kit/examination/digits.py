"""The dtype of a function's answers, and the digits that they lose."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import dtype_name, in_dtype, listed
from cs336_kit.examination.calls import has_dtype
from cs336_kit.examination.experiment import Ask, Finding, Finds
from cs336_kit.examination.search import ask_in
from cs336_kit.examination.table import Answers, Change, Table, ways_of, widen

DIGITS = {torch.float64: 16, torch.float32: 7, torch.float16: 3}
# Of the largest number: what a program in this dtype does not lose; and the dtype to which it may round.
NARROWER = {torch.float64: (1e-11, torch.float32), torch.float32: (1e-5, torch.float16)}
FURTHER = 1.5  # times as far from the right answer as rounding takes it: a program in half precision

INSIDE = "Which of your tensors or numbers has fewer digits than the answer needs?"


def count_digits(
    ask: Ask, table: Table, changes: Sequence[Change] | None, dtypes: Sequence[torch.dtype]
) -> Iterator[Finding]:
    """Say which answers do not have the dtype of the inputs, and in which of these dtypes digits are lost.

    What is lost is measured in the widest of them and in half precision, where `changes` explain the answers.
    """
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    in_dtypes = {
        dtype: ask_in(dtype, ask, table, table.digits[: 1 if dtype == torch.float32 != widest else None])
        for dtype in dtypes
    }
    yield from _tell_dtypes(in_dtypes)
    if changes is not None:
        yield from _tell_lost_digits(table, changes, in_dtypes, widest)


def _tell_dtypes(in_dtypes: Mapping[torch.dtype, Answers]) -> Iterator[Finding]:
    """Check that the answers have the dtype of the input."""
    wrong = {
        dtype: came.dtype for dtype, answers in in_dtypes.items() for came in answers.values() if came.dtype != dtype
    }
    if not wrong:
        return
    inputs = {came: listed(dtype_name(given) for given in wrong if wrong[given] == came) for came in wrong.values()}
    pairs = [f"{dtype_name(came)} for inputs in {given}" for came, given in inputs.items()]
    always = f"-always-{dtype_name(next(iter(wrong.values())))}" if len(wrong) == len(in_dtypes) - 1 else ""
    measured = f"Your answer is {' and '.join(pairs)}; it should have the dtype of the input."
    question = "Which dtype has the tensor that you return, and where did it get it?"
    yield Finding(f"dtype{always}", measured, "", question, has_dtype(*wrong))


def _tell_lost_digits(
    table: Table, changes: Sequence[Change], in_dtypes: Mapping[torch.dtype, Answers], widest: torch.dtype
) -> Iterator[Finding]:
    """Measure how many digits are lost by rounding, and look for the step that loses them.

    A number is not found to all its digits: what it has changed is not measured.
    """
    exact_ways = [each for each in changes if each.number is None]
    for dtype in (widest, *(dtype for dtype in in_dtypes if dtype.itemsize == 2)):
        for call, came in in_dtypes[dtype].items():
            if not torch.equal(table.call(changes, *table.calls[call]), table.call(exact_ways, *table.calls[call])):
                continue
            arguments = [in_dtype(x, dtype) for x in table.calls[call]]
            exact = table.call(exact_ways, *(in_dtype(x, torch.float64) for x in arguments))
            tell = _tell_digits if dtype == widest else _tell_half
            if came.dtype == dtype and (found := tell(table, exact_ways, arguments, came, exact)):
                yield found
                return


def _tell_digits(
    table: Table, changes: Sequence[Change], arguments: Sequence[Any], came: Tensor, exact: Tensor
) -> Finds:
    off = float((came - exact).abs().max() / exact.abs().max())
    kept, narrower = NARROWER[came.dtype]
    if not kept < off < 1:
        return None
    name, digits = dtype_name(came.dtype), -math.log10(off)
    measured = f"For inputs in {name} your answer is right to {digits:.0f} digits; {name} has {DIGITS[came.dtype]}."
    for each in table.roundings:
        if came.dtype in each.dtypes:
            rounded = table.run({**table.right, **ways_of(changes), **each.ways(narrower)}, *arguments)
            if float((came - rounded).abs().max() / exact.abs().max()) < kept:
                return Finding(each.id, measured, each.says.format(dtype_name(narrower)), INSIDE, has_dtype(came.dtype))
    means = f"Some step is computed in {dtype_name(narrower)}." if abs(digits - DIGITS[narrower]) < 1 else ""
    return Finding(f"{dtype_name(narrower)}-inside", measured, means, INSIDE, has_dtype(came.dtype))


def _tell_half(table: Table, changes: Sequence[Change], arguments: Sequence[Any], came: Tensor, exact: Tensor) -> Finds:
    dtype = came.dtype
    right = exact.to(dtype)  # which is as near as an answer in this dtype can be
    off, least = float((came.double() - exact).abs().mean()), float((right.double() - exact).abs().mean())
    if not off > FURTHER * least:
        return None
    name = dtype_name(dtype)
    measured = f"In {name} your error is {off / least:.1f} times what rounding the right answer to {name} would cause."
    for each in table.roundings:
        if dtype in each.dtypes:
            wide = [widen(x) for x in arguments]
            rounded = table.run({**table.right, **ways_of(changes), **each.ways(dtype)}, *wide).to(dtype)
            if float((came.double() - rounded.double()).abs().mean()) < off / 4:
                return Finding(each.id, measured, each.says.format(name), INSIDE, has_dtype(dtype))
    return Finding("half-inside", measured, f"Some step is computed in {name}.", INSIDE, has_dtype(dtype))

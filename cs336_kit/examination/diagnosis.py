"""The diagnosis of a function: the calls that break, the mistakes that explain its answers, and what it promises."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import dtype_name, in_dtype
from cs336_kit.examination.contract import DTYPES, Call, Contract, Variation, has_dtype, try_calls
from cs336_kit.examination.experiment import Ask, Finding, Finds, NoAnswerError, examine
from cs336_kit.examination.search import (
    Answers,
    Change,
    Search,
    Table,
    alike,
    ask_all,
    tell_changes,
    tell_gap,
    ways_of,
    widen,
)

DIGITS = {torch.float64: 16, torch.float32: 7, torch.float16: 3}
# Of the largest number: what a program in this dtype does not lose; and the dtype to which it may round.
NARROWER = {torch.float64: (1e-11, torch.float32), torch.float32: (1e-5, torch.float16)}
FURTHER = 1.5  # times as far from the right answer as rounding takes it: a program in half precision

INSIDE = "Which of your tensors or numbers has fewer digits than the answer needs?"

Facts = Callable[[Ask, bool], Iterable[Callable[[Ask], Finding | None]]]


def diagnose(
    ask: Ask,
    table: Table,
    usual: Call,
    words: str,
    variations: Sequence[Variation],
    facts: Facts,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    without: Sequence[str] = (),
) -> list[Finding]:
    """Say what is wrong with a function, the most fundamental first.

    What a program with the mistakes found does as well is not told again: it breaks in the same calls, and has the same
    gradients.

    Args:
        ask: asks it.
        table: the right program and the mistakes.
        usual: its usual call, which is called `words` in a sentence.
        variations: of that call.
        facts: experiments that measure what no mistake in the table explains. They are told whether the answers to the
            basic calls are explained.
        dtypes: that its answer must keep. In the widest of them and in half precision, digits are counted.
        without: the names of arguments that need no gradient.
    """
    calls = try_calls(ask, usual, words, variations)
    if not calls.works:
        return calls.findings
    contract = Contract(ask, calls.usual, dtypes, without)
    answers = ask_all(ask, table)
    again = [_Again(table.calls[call], tuple(came.shape)) for call, came in answers.items()][:1]
    if unsteady := examine(Contract(ask, again[0] if again else calls.usual), (Contract.repeatable,)):
        return [*calls.findings, *unsteady, *examine(contract, (Contract.inputs_left_alone,))]
    search = Search(table, answers)
    changes = search.explain()
    if changes is not None:
        found = tell_changes(table, changes, answers)
    else:
        changes = search.explain_basic()
        found = tell_changes(table, changes or [], search.basic, f" {table.basic_words}")
        measured = examine(ask, facts(ask, changes is not None))
        found += measured or [_tell_wrong(table, answers)]
    found += examine(contract, (Contract.dtype,))
    if changes is not None and all(each.number is None for each in changes):  # a number is not found to all digits
        found += examine(ask, (partial(measure_digits, table, changes, dtypes),))
    found += examine(contract, (Contract.inputs_left_alone, Contract.gradients))
    told = [*calls.findings, *found]
    if all(each.program for each in told):
        return told
    model = Ask(partial(table.call, changes or []), *ask.names)
    same = {each.id for call in {usual, calls.usual} for each in try_calls(model, call, words, variations).findings}
    promises = (Contract.dtype, Contract.inputs_left_alone, Contract.gradients)
    same |= {each.id for each in examine(Contract(model, calls.usual, dtypes, without), promises)}
    return [each for each in told if each.program or each.id not in same]


@dataclass(frozen=True)
class _Again:
    """A call of a table once more."""

    arguments: tuple[Any, ...]
    shape: tuple[int, ...]


def _tell_wrong(table: Table, answers: Answers) -> Finding:
    """The first answer that is wrong."""
    call = next(call for call, came in answers.items() if not alike(came, table.expected[call]))
    return Finding("wrong", tell_gap(call, answers[call], table.expected[call]), "", "")


def measure_digits(table: Table, changes: Sequence[Change], dtypes: Sequence[torch.dtype], ask: Ask) -> Finds:
    """Measure how many digits are lost by rounding, and look for the step that loses them."""
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    for dtype in (widest, *(dtype for dtype in dtypes if dtype.itemsize == 2)):
        for call, given in table.calls.items():
            if call not in table.basic:
                continue
            arguments = [in_dtype(x, dtype) for x in given]
            try:
                came = ask(*arguments)
            except NoAnswerError:
                continue
            exact = table.call(changes, *(in_dtype(x, torch.float64) for x in arguments))
            if not isinstance(came, Tensor) or came.shape != exact.shape or came.dtype != dtype:
                continue
            tell = _tell_digits if dtype == widest else _tell_half
            if found := tell(table, changes, arguments, came, exact):
                return found
    return None


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

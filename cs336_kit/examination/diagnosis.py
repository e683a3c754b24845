"""The diagnosis of a function: the calls that break, the mistakes that explain its answers, and what it promises."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import dtype_name, in_dtype, is_float, listed
from cs336_kit.examination.contract import DTYPES, Call, Calls, Contract, Variation, has_dtype, try_calls
from cs336_kit.examination.experiment import Ask, Finding, Finds, examine
from cs336_kit.examination.search import (
    Answers,
    Change,
    Search,
    Table,
    alike,
    ask_in,
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

Facts = Callable[[Ask, Answers], Iterable[Callable[[Ask], Finding | None]]]


def diagnose(
    ask: Ask,
    table: Table,
    usual: Call,
    words: str,
    variations: Sequence[Variation],
    facts: Facts,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    without: Sequence[str] = (),
    of_gradients: Call | None = None,
) -> list[Finding]:
    """Say what is wrong with a function, the most fundamental first.

    What a program with the mistakes found does as well is not told again: it breaks in the same calls, and has the same
    gradients.

    Args:
        ask: asks it.
        table: the right program and the mistakes.
        usual: its usual call, which is called `words` in a sentence.
        variations: of that call.
        facts: experiments that measure what no mistake in the table explains. They are given the answers to the basic
            calls, unless those are explained.
        dtypes: that its answer must keep. In the widest of them and in half precision, digits are counted.
        without: the names of arguments that need no gradient.
        of_gradients: the call whose gradients are examined where everything works, if not the usual one.
    """

    def breaks(changes: Sequence[Change], usual: Call = usual) -> Calls[Call]:
        return try_calls(Ask(partial(table.call, changes), *ask.names), usual, words, variations)

    calls = try_calls(ask, usual, words, variations)
    if not calls.findings and not calls.works:
        return []
    works = next(x.dtype for x in calls.usual.arguments if is_float(x))
    answers = {call: came.float() for call, came in ask_in(works, ask, table, table.calls).items()}
    if not calls.works:
        explained = _explain_breaks(calls, table, [], answers, breaks)
        return [explained] if explained else calls.findings
    contract = Contract(ask, calls.usual, without)
    again = [_Again(tuple(in_dtype(x, works) for x in table.calls[call]), came.shape) for call, came in answers.items()]
    if unsteady := examine(Contract(ask, again[0] if again else calls.usual), (Contract.repeatable,)):
        return [*calls.findings, *unsteady, *examine(contract, (Contract.inputs_left_alone,))]
    search = Search(table, answers)
    changes = search.explain()
    if changes is not None:
        found = tell_changes(table, changes, answers)
    else:
        changes = search.explain_basic()
        found = tell_changes(table, changes or [], search.basic, f" {table.basic_words}")
        measured = examine(ask, facts(ask, {} if changes is not None else search.basic))
        found += measured or [_tell_wrong(table, answers)]
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    in_dtypes = {
        dtype: ask_in(dtype, ask, table, table.digits[: 1 if dtype == torch.float32 != widest else None])
        for dtype in dtypes
    }
    found += _tell_dtypes(in_dtypes)
    if changes is not None:
        found += _tell_lost_digits(table, changes, in_dtypes, widest)
    found += examine(contract, (Contract.inputs_left_alone,))
    call = of_gradients if of_gradients and not calls.findings else calls.usual
    contract = Contract(ask, call, without, in_place=any(each.id == "in-place" for each in found))
    for each in examine(contract, (Contract.gradients,)):
        found += _explain_gradients(each, contract, call, table, changes)
    broken = calls.findings
    if not all(each.program for each in [*broken, *found]):
        same = {each.id for call in {usual, calls.usual} for each in breaks(changes or [], call).findings}
        broken = [each for each in broken if each.id not in same]
        found = [each for each in found if each.program or each.id not in same]
    if broken and changes is not None:
        for others in ([], changes) if changes else ([],):  # one mistake may do both: break calls and spoil others
            if explained := _explain_breaks(replace(calls, findings=broken), table, others, answers, breaks):
                broken = [explained]
                found = [each for each in found if others or not each.program]
                break
    return [*broken, *found]


@dataclass(frozen=True)
class _Again:
    """A call of a table once more."""

    arguments: tuple[Any, ...]
    shape: tuple[int, ...]


def _explain_breaks(
    calls: Calls[Any],
    table: Table,
    changes: Sequence[Change],
    answers: Answers,
    breaks: Callable[[Sequence[Change]], Calls[Any]],
) -> Finding | None:
    """Say which mistake breaks the calls that were found to break, and no others, if one in the table does.

    Of several, it is the one whose errors have the same words most often.
    """

    def is_as(came: Tensor | None, call: str) -> bool:
        """Tell whether it is the student's answer, or none where the student's function gave none."""
        if call in answers:
            return alike(came, answers[call])
        return came is None or came.shape != table.expected[call].shape

    matching: list[tuple[int, Change]] = []
    for each in table.changes:
        ways = ways_of(both := [*changes, each])
        if each.numbers or not all(is_as(table.answer(ways, call), call) for call in table.calls):
            continue
        same = breaks(both)
        if same.usual == calls.usual and (words := calls.count_same_words(same)) is not None:
            matching.append((words, each))
    if not matching:
        return None
    _, best = max(matching, key=lambda match: match[0])
    means = f"{best.says} A program that is right but for this mistake breaks in the same calls, in the same way."
    return replace(calls.findings[0], id=best.id, means=means, question=best.asks, program=partial(table.call, [best]))


def _explain_gradients(
    found: Finding, contract: Contract, call: Call, table: Table, changes: Sequence[Change] | None
) -> Iterator[Finding]:
    """Say which mistake gives the gradients that were found, if it is in the table; nothing, if the answers' does.

    Those of a wrong answer may differ from its difference quotients where those of a right one would not: autograd may
    treat a maximum as constant. So that is told of right answers alone.
    """
    right, changes = changes == [], changes or []
    if contract.has_slopes_of(partial(table.call, changes), call):
        return
    for cut in table.cuts:
        if contract.has_slopes_of(partial(table.call, [*changes, cut]), call):
            if cut.says:
                yield replace(found, id=cut.id, means=cut.says, question=cut.asks, program=partial(table.call, [cut]))
            return
    if right or found.id != "gradient-wrong":
        yield found


def _tell_wrong(table: Table, answers: Answers) -> Finding:
    """The first answer that is wrong."""
    call = next(call for call, came in answers.items() if not alike(came, table.expected[call]))
    return Finding("wrong", tell_gap(call, answers[call], table.expected[call]), "", "")


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

"""The diagnosis of a function: the calls that break, the mistakes that explain its answers, and what it promises."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.compare import in_dtype, is_float
from cs336_kit.examination.calls import DTYPES, Call, Calls, Variation, try_calls
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.digits import count_digits
from cs336_kit.examination.experiment import Ask, Finding, examine
from cs336_kit.examination.search import Search, ask_in
from cs336_kit.examination.table import Answers, Change, Table, alike, ways_of
from cs336_kit.examination.tell_changes import tell_changes, tell_gap

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
    changes, found = _explain_answers(ask, table, answers, facts)
    found += count_digits(ask, table, changes, dtypes)
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


def _explain_answers(
    ask: Ask, table: Table, answers: Answers, facts: Facts
) -> tuple[Sequence[Change] | None, list[Finding]]:
    """Look for the mistakes that explain the answers, in all calls or in the basic ones, and measure the rest."""
    search = Search(table, answers)
    if (changes := search.explain()) is not None:
        return changes, tell_changes(table, changes, answers)
    changes = search.explain_basic()
    found = tell_changes(table, changes or [], search.basic, f" {table.basic_words}")
    measured = examine(ask, facts(ask, {} if changes is not None else search.basic))
    return changes, found + (measured or [_tell_wrong(table, answers)])


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

"""Tell the mistakes that a search has found: where each shows best, what it says of the code, and what proves it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from cs336_kit.engine.compare import index_of
from cs336_kit.examination.experiment import Finding, number
from cs336_kit.examination.table import INFINITE, Answers, Change, Table, alike, ways_of

Place = tuple[int, ...]


def tell_changes(table: Table, changes: Sequence[Change], answers: Answers, where: str = "") -> list[Finding]:
    """Findings for changes with which the right program gives these answers.

    Args:
        where: what these calls have in common, " without a mask", where they are not all calls.
    """
    findings = []
    for change in changes:
        call, place = _where_it_shows(table, change, [each for each in changes if each is not change], answers)
        measured = tell_gap(call, answers[call], table.expected[call], place)
        means = change.says.format("" if change.number is None else spell(change.number))
        findings.append(Finding(change.id, measured, means, change.asks, program=partial(table.call, [change])))
    these = {1: "this mistake", 2: "two mistakes, this one and another,"}.get(len(changes), f"{len(changes)} mistakes")
    tried = f"all {len(answers)} calls" if len(answers) > 1 else "the only call"
    answered = (
        ""
        if len(answers) >= len(table.basic if where else table.calls)
        else " in which your answer has the right shape"
    )
    proof = f"A program that is right but for {these} gives your numbers in {tried}{where}{answered}."
    return [*findings[:-1], *(replace(last, means=f"{last.means} {proof}") for last in findings[-1:])]


def _where_it_shows(table: Table, change: Change, others: list[Change], answers: Answers) -> tuple[str, Place]:
    """The call, and the place in it, that best shows a change: if there is one, a call that the others leave right."""
    wrong = [call for call in answers if not alike(answers[call], table.expected[call])]
    without = {call: table.answer(ways_of(others), call) for call in wrong}
    shows = [call for call in wrong if not alike(without[call], answers[call])]
    isolated = [call for call in shows if alike(without[call], table.expected[call])]
    call = (isolated or shows or wrong)[0]
    was = without[call]
    return call, _furthest(answers[call], table.expected[call] if was is None or call not in shows else was)


def _furthest(came: Tensor, other: Tensor) -> Place:
    gap = (came - other).abs().nan_to_num(INFINITE, INFINITE)
    return tuple(index_of(int(gap.argmax()), gap.shape))


def tell_gap(call: str, came: Tensor, right: Tensor, place: Place | None = None) -> str:
    """Compare an answer with the right one at a place: "For two dimensions, your answer at [0, 3] is 2; …".

    Without a place, it is the one that is furthest from the right one.
    """
    place = _furthest(came, right) if place is None else place
    return f"{call}, your answer at {list(place)} is {number(came[place])}; it should be {number(right[place])}."


def spell(x: float) -> str:
    """Three digits, or two of a large number: "0.378", "-10,000", "-1e9"."""
    if 1e-3 < abs(x) < 1e3:
        return f"{x:.3g}"
    return (
        f"{float(f'{x:.2g}'):,.0f}"
        if 1 <= abs(x) < 1e6
        else f"{x:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    )

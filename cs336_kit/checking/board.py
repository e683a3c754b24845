"""The board: what each problem has earned so far and what to do next."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome, Result

SLOW = 3.0  # seconds of processor time of one test: a call that takes 10 is stopped when it is graded


@dataclass(frozen=True)
class Score:
    """One problem, the results of its tests, and what explains the failures among them."""

    problem: Problem
    results: tuple[Result, ...]
    explanations: tuple[Explanation, ...] = ()

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)

    @property
    def points(self) -> float:
        return math.fsum(result.points for result in self.results)

    @property
    def first_failure(self) -> Result | None:
        return next((result for result in self.results if not result.passed), None)

    @property
    def state(self) -> str:
        if all(result.outcome is Outcome.NOT_RUN for result in self.results):
            return "not run"
        if self.first_failure is None:
            return "passed"
        unwritten = all(result.check is Check.NOT_WRITTEN for result in self.results)
        return "not implemented" if unwritten else "failing"


def score(
    problems: Iterable[Problem], results: Iterable[Result], explanations: Iterable[Explanation] = ()
) -> list[Score]:
    """Give each problem its results and explanations."""
    results, explanations = list(results), list(explanations)
    return [
        Score(
            problem,
            tuple(result for result in results if result.problem == problem.id),
            tuple(explanation for explanation in explanations if explanation.problem == problem.id),
        )
        for problem in problems
    ]


def render(scores: list[Score], not_own_work: Sequence[str], everything: bool = False) -> Group:
    """The board as rich prints it, with all the explanations below it or, usually, the first.

    Args:
        scores: a row for each.
        not_own_work: what the student uses and must write: a title and lines of text, which come last.
        everything: whether to show all the explanations.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("Problem")
    table.add_column("State")
    table.add_column("Tests", justify="right")
    table.add_column("Points", justify="right")
    colours = {"passed": "green", "failing": "red", "not implemented": "yellow", "not run": "red"}
    for result in scores:
        table.add_row(
            result.problem.id + " (bonus)" * result.problem.bonus,
            Text(result.state, colours[result.state]),
            f"{result.passed}/{len(result.results)}",
            f"{result.points:.1f}/{result.problem.points:g}",
        )
    return Group(
        table,
        Text(_summary(scores)),
        *_next_step(scores),
        *_slow(scores),
        *(_explained(scores) if everything else ()),
        *_told(not_own_work),
    )


def _summary(scores: list[Score]) -> str:
    passed, planned = sum(result.passed for result in scores), sum(len(result.results) for result in scores)
    return f"{passed} of {planned} public tests passed; the hidden suite was not run."


def _next_step(scores: list[Score]) -> Iterable[RenderableType]:
    for result in scores:
        if failure := result.first_failure:
            yield Text.assemble("\nNext: ", (failure.test, "bold"))
            yield Padding(Text(failure.headline, "red"), (0, 0, 0, 2), expand=False)
            if result.explanations:
                lines, style = result.explanations[0].lines, "bold"
            else:
                lines, style = failure.details, ""
            if lines:
                yield Padding(Text("\n".join(lines), style), (0, 0, 0, 4), expand=False)
            yield Text(f"  uv run pytest -x -k {failure.function}", "cyan")
            return


def _slow(scores: list[Score]) -> Iterable[RenderableType]:
    slowest = max(
        (result for each in scores for result in each.results), key=lambda result: result.seconds, default=None
    )
    if slowest and slowest.seconds > SLOW:
        what = f"\nSlow: {slowest.test} took {slowest.seconds:.0f} s of processor time."
        yield Text(f"{what} A call that takes more than 10 s is stopped when it is graded.", "yellow")


def _told(lines: Sequence[str]) -> Iterable[RenderableType]:
    if lines:
        yield Text(f"\n{lines[0]}", "yellow")
        yield Padding(Text("\n".join(lines[1:])), (0, 0, 0, 2), expand=False)


def _explained(scores: list[Score]) -> Iterable[RenderableType]:
    for result in scores:
        if result.explanations:
            yield Text(f"\nWhat your code does: {result.problem.id}", "yellow")
        for explanation in result.explanations:
            yield Padding(Text("\n".join(explanation.lines), "bold"), (0, 0, 1, 2), expand=False)

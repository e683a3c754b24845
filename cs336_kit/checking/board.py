"""The board: what each problem has earned so far and what to do next."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem

# The message of a test that was planned after the one during which the process ended.
NOT_RUN = "did not run"


@dataclass(frozen=True)
class Verdict:
    """What became of one planned test.

    Args:
        test: the name of the test function.
        case: what it ran on, or "" for a test without cases.
        passed: whether it passed.
        message: the headline of the failure.
        details: the lines below it.
        named: lines that name the known mistake, where the whole run knows it.
    """

    test: str
    case: str
    passed: bool
    message: str = ""
    details: str = ""
    named: str = ""


@dataclass(frozen=True)
class Score:
    """One problem and the verdicts of its tests."""

    problem: Problem
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> int:
        return sum(verdict.passed for verdict in self.verdicts)

    @property
    def points(self) -> float:
        """Each test function earns its weight times the share of its cases that passed."""
        earned = 0.0
        for test, weight in self.problem.tests.items():
            results = [verdict.passed for verdict in self.verdicts if verdict.test == test]
            earned += weight * sum(results) / len(results) if results else 0.0
        return self.problem.points * earned / sum(self.problem.tests.values())

    @property
    def first_failure(self) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)

    @property
    def state(self) -> str:
        failure = self.first_failure
        if all(verdict.message == NOT_RUN for verdict in self.verdicts):
            return "not run"
        if failure is None:
            return "passed"
        unwritten = [v for v in self.verdicts if not v.passed and v.message.startswith("not implemented yet")]
        return "not implemented" if len(unwritten) == len(self.verdicts) else "failing"


def score(problems: Iterable[Problem], verdicts: Iterable[Verdict]) -> list[Score]:
    """Give each problem the verdicts of its tests."""
    verdicts = list(verdicts)
    return [Score(problem, tuple(v for v in verdicts if v.test in problem.tests)) for problem in problems]


def render(scores: list[Score]) -> Group:
    """The board as rich prints it."""
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
            f"{result.passed}/{len(result.verdicts)}",
            f"{result.points:.1f}/{result.problem.points:g}",
        )
    return Group(table, Text(_summary(scores)), *_next_step(scores))


def _summary(scores: list[Score]) -> str:
    passed, planned = sum(result.passed for result in scores), sum(len(result.verdicts) for result in scores)
    return f"{passed} of {planned} public tests passed; the hidden suite was not run."


def _next_step(scores: list[Score]) -> Iterable[RenderableType]:
    for result in scores:
        if failure := result.first_failure:
            where = f"{failure.test}[{failure.case}]" if failure.case else failure.test
            yield Text.assemble("\nNext: ", (where, "bold"))
            yield Padding(Text(failure.message, "red"), (0, 0, 0, 2), expand=False)
            if failure.named or failure.details:
                yield Padding(
                    Text(failure.named or failure.details, "bold" if failure.named else ""), (0, 0, 0, 4), expand=False
                )
            yield Text(f"  uv run pytest -x -k {failure.test}", "cyan")
            return

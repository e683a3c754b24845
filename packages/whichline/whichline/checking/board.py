"""The board: the points of each problem so far, and what to do next."""

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whichline.checking.runner import Run
from whichline.engine.assignment import Problem, name_command, read_assignment
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result

SLOW = 3.0  # seconds of processor time of one test; grading stops a call after 10


@dataclass(frozen=True)
class Score:
    """One problem with the results of its tests."""

    problem: Problem
    results: tuple[Result, ...]
    explanations: tuple[Finding, ...] = ()  # of the failures
    ended: bool = True  # whether all its tests have ended
    deducted: float = 0.0  # points that will not count

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)

    @property
    def points(self) -> float:
        """The points that will count."""
        return max(0.0, math.fsum(result.points for result in self.results) - self.deducted)

    @property
    def first_failure(self) -> Result | None:
        """The first failing test that the first explanation is about; without explanations, the first failing test."""
        failing = [result for result in self.results if not result.passed]
        about = [result for result in failing if any(result.test in each.tests for each in self.explanations[:1])]
        return next(iter(about or failing), None)

    @property
    def first_explanations(self) -> list[Finding]:
        return find_together(self.explanations)

    @property
    def state(self) -> str:
        if not self.ended:
            return "running"
        if all(result.outcome is Outcome.NOT_RUN for result in self.results):
            return "not run"
        if self.first_failure is None:
            return "passed"
        return "not implemented" if all(result.check is Check.NOT_WRITTEN for result in self.results) else "failing"


def score(problems: Iterable[Problem], results: Iterable[Result], explanations: Iterable[Finding] = ()) -> list[Score]:
    """Give each problem its results and explanations."""
    results, explanations = list(results), list(explanations)
    scores = []
    for problem in problems:
        told = tuple(explanation for explanation in explanations if explanation.problem == problem.id)
        scores.append(Score(problem, tuple(result for result in results if result.problem == problem.id), told))
    return scores


def deduct(scores: Iterable[Score], points: Mapping[str, float]) -> list[Score]:
    """Deduct the points of each problem that will not count, since the work is not the student's own."""
    return [replace(each, deducted=points.get(each.problem.id, 0.0)) for each in scores]


@dataclass(frozen=True)
class Lines:
    """Lines for rich, which are wrapped to the width of the terminal and keep their indents."""

    lines: Iterable[str]
    style: str = ""
    margin: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from (Text(line, self.style) for line in wrap_lines(self.lines, options.max_width, self.margin))


def wrap_lines(lines: Iterable[str], width: int, margin: str = "") -> Iterator[str]:
    """Wrap lines, and indent the continuation of a line further than its beginning; a long word stays whole."""
    for line in lines:
        indent = margin + " " * (len(line) - len(line.lstrip()))
        wrapper = textwrap.TextWrapper(max(width - len(indent), 20), subsequent_indent="  ")
        wrapper.break_long_words = wrapper.break_on_hyphens = False
        yield from (f"{indent}{part}" for part in wrapper.wrap(line.strip()) or [""])


def find_together(findings: Sequence[Finding]) -> list[Finding]:
    """The first of some findings, and the findings that were proved together with it."""
    return [each for each in findings if each.tests == findings[0].tests]


def join_findings(findings: Iterable[Finding]) -> Iterator[str]:
    """The lines of some findings, one below the other; if several name the same section, only the last names it."""
    findings = list(findings)
    for number, (finding, *later) in enumerate(findings[n:] for n in range(len(findings))):
        is_named = any(each.section == finding.section for each in later)
        yield from [""] * bool(number)
        yield from replace(finding, section="" if is_named else finding.section).lines


def name_places(findings: Iterable[Finding]) -> Iterator[str]:
    """A line with the positions of findings that are not shown, if there are any."""
    places = list(dict.fromkeys(f"{each.file}:{each.line}" for each in findings if each.file))
    if places:
        yield f"and {len(places)} more place{'s' * (len(places) > 1)}: {', '.join(places)}"


def render(scores: list[Score], run: Run, root: Path, *, whole: bool = False, everything: bool = False) -> Group:
    """The board for rich to print, with the first explanation below it, and with `everything` all the others.

    With `whole`, these are all the problems, so a welcome or "submit" may be shown.
    """
    # It fits into 60 columns: half a screen, beside an editor.
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("Problem", no_wrap=True)
    table.add_column("State")
    table.add_column("Tests", justify="right")
    table.add_column("Points", justify="right")
    colours = {"passed": "green", "failing": "red", "not implemented": "yellow", "not run": "red", "running": ""}
    for result in scores:
        name, state = result.problem.id + " (bonus)" * result.problem.bonus, Text(result.state, colours[result.state])
        points = f"{result.points:.1f}/{result.problem.points:g}"
        table.add_row(name, state, f"{result.passed}/{len(result.results)}", points)
    failing = (each for each in scores if (first := each.first_failure) and first.outcome is not Outcome.NOT_RUN)
    following = next(failing, None)
    passed, planned = sum(result.passed for result in scores), sum(len(result.results) for result in scores)
    return Group(
        table,
        Text(f"{passed} of {planned} public tests passed; the hidden suite was not run."),
        *(_choose_hint_problem(scores, run) if whole else ()),
        *(_render_next_step(following, run, root, everything) if following else ()),
        *_render_slow(scores),
        *(_render_explained(scores, following.first_explanations if following else ()) if everything else ()),
        *_render_lines(run.errors),
        *_render_lines(run.notes.forbidden_work),
        *_render_lines(run.notes.undone),
    )


def render_hints(problem: Problem, steps: int) -> Group:
    """The first `steps` hints of a problem for rich to print."""
    hints = Table.grid(padding=(0, 1))
    for step, hint in enumerate(problem.hints[:steps], start=1):
        hints.add_row(f" {step}.", Text(hint))
    return Group(Text(f"Hints for {problem.id}, {steps} of {len(problem.hints)}", "bold"), hints)


def begin_at(root: Path, problem: Problem) -> str:
    """The first line of the problem's files where code is to be written; "" if there is none.

    In a file of several problems it is in the function that has the problem's title for a name.
    """
    title = re.sub(r"\W+", "_", problem.title.lower())
    for name in problem.files:
        if not (root / name).exists():
            return name
        is_shared = sum(name in each.files for each in read_assignment(root).problem) > 1
        function = ""
        lines = (root / name).read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if found := re.match(r" *(?:async )?def (\w+)", line):
                function = found[1]
            if line.strip().startswith("raise NotImplementedError") and (not is_shared or function == title):
                return f"{name}:{number}"
    return ""


def _choose_hint_problem(scores: list[Score], run: Run) -> Iterable[RenderableType]:
    required = [result for result in scores if not result.problem.bonus]
    if all(result.state == "not implemented" for result in scores):
        yield Text()
        hint, watch = name_command("hint"), name_command("check --watch")
        welcome = (
            "Welcome! docs/assignment.md explains each problem.",
            f"{hint:<{len(watch)}}  asks a question that helps",
            f"{watch}  shows this after every save",
        )
        yield Lines(welcome, "green")
    elif all(result.state == "passed" for result in required) and not run.notes.forbidden_work:
        points = sum(result.points for result in required)
        most = sum(result.problem.points for result in required)
        yield Text.assemble((f"\n{points:g} of {most:g} points: now ", "green"), (name_command("submit"), "bold green"))
        if left := [result for result in scores if result.problem.bonus and result.state != "passed"]:
            bonus = sum(result.problem.points - result.points for result in left)
            names = ", ".join(result.problem.id for result in left)
            yield Lines([f"Up to {bonus:.3g} bonus points are left: {names}"], "green")


def _render_next_step(result: Score, run: Run, root: Path, everything: bool) -> Iterable[RenderableType]:
    failure = result.first_failure
    assert failure is not None
    if result.state == "not implemented":
        yield Text.assemble("\nNext: ", (result.problem.id, "bold"))
        if (place := begin_at(root, result.problem)) not in failure.headline:  # any headline contains ""
            yield Lines([f"open {place}"], "bold", "  ")
    else:
        yield Text.assemble("\nNext: ", (failure.test, "bold"))
    if not result.explanations:
        yield Lines([failure.headline], "yellow" if failure.check is Check.NOT_WRITTEN else "red", "  ")
        yield Lines(failure.details, "", "    ")
    yield Lines(join_findings(result.first_explanations), "bold", "  ")
    if not everything:
        later = (each for each in result.explanations if each not in result.first_explanations)
        yield Lines(name_places(later), "", "  ")
    if printed := run.printed.get(failure.test):
        yield Lines(["your code printed:", *(f"  {line}" for line in printed)], "dim", "  ")
    # Without an indent, the longest fits into 80 columns.
    yield Text(f"uv run pytest -x -k {failure.function}", "cyan", no_wrap=True, overflow="ignore")


def _render_slow(scores: list[Score]) -> Iterable[RenderableType]:
    results = (result for each in scores for result in each.results)
    slowest = max(results, key=lambda result: result.seconds, default=None)
    if slowest and slowest.seconds > SLOW:
        what = f"\nSlow: {slowest.test} took {slowest.seconds:.0f} s of processor time."
        yield Text(f"{what} A call that takes more than 10 s is stopped when it is graded.", "yellow")


def _render_lines(lines: list[str]) -> Iterable[RenderableType]:
    if lines:
        yield Text(f"\n{lines[0]}", "yellow")
        yield Lines(lines[1:], "", "  ")


def _render_explained(scores: list[Score], told: Sequence[Finding]) -> Iterable[RenderableType]:
    for result in scores:
        if left := [each for each in result.explanations if each not in told]:
            yield Text(f"\nWhat your code does: {result.problem.id}", "yellow")
            yield Lines(join_findings(left), "bold", "  ")

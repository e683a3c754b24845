"""The terminal that staff see while a batch is graded, and afterwards."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Outcome, Result
from cs336_staff.grading import batch
from cs336_staff.grading.gradebook import Grading
from cs336_staff.grading.report import safe_name
from cs336_staff.sandbox.printable import printable

LINES = 20


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[batch.Progress], None]]:
    """A bar with submissions done and running, and the time left; where there is no terminal, at most `LINES` lines."""
    if not console.is_terminal:
        told, waits_for = 0, ""

        def tell(now: batch.Progress) -> None:
            nonlocal told, waits_for
            if now.done * LINES // max(1, now.total) > told or now.waits_for not in (waits_for, ""):
                told = now.done * LINES // now.total
                console.print(Text(_so_far(now)))
            waits_for = now.waits_for

        yield tell
        return
    # Drawn when something changes: a thread that draws must not be there when a submission's process is forked.
    columns = (BarColumn(), TextColumn("{task.fields[so_far]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=None, so_far="")

        def show(now: batch.Progress) -> None:
            bar.update(task, total=now.total, completed=now.done, so_far=_so_far(now), refresh=True)

        yield show


def _so_far(now: batch.Progress) -> str:
    if now.waits_for:
        return f"{now.done} of {now.total} done; {now.waits_for}"
    faults = f", {len(now.faults)} not graded" if now.faults else ""
    return f"{now.done} of {now.total} done, {now.running} running, {now.below} below full points{faults}"


def board(grading: Grading, problems: Mapping[str, Problem]) -> Table:
    """One submission: a row for each problem."""
    table = Table(title=Text(f"{grading.submission}, public and hidden tests"), show_footer=True)
    table.add_column("Problem", "Total")
    table.add_column("State")
    table.add_column("Tests", f"{_passed(grading.results)}/{len(grading.results)}", justify="right")
    table.add_column("Points", f"{grading.points:.1f}/{grading.maximum:g}", justify="right")
    for problem in problems.values():
        results = [result for result in grading.results if result.problem == problem.id]
        outcomes = {result.outcome for result in results}
        state = next(each for each in (Outcome.VIOLATION, Outcome.FAILED, Outcome.PASSED) if each in outcomes)
        points = f"{grading.points_of(problem.id):.1f}/{problem.points:g}"
        colour = "green" if state is Outcome.PASSED else "red"
        name = problem.id + " (bonus)" * problem.bonus
        table.add_row(name, Text(state, colour), f"{_passed(results)}/{len(results)}", points)
    return table


def boards(gradings: Iterable[Grading], problems: Mapping[str, Problem]) -> Table:
    """Many submissions: a row for each."""
    numbered = ", ".join(f"{number} {problem}" for number, problem in enumerate(problems, start=1))
    table = Table(title="Public and hidden tests", caption=numbered)
    table.add_column("Submission")
    for number, _ in enumerate(problems, start=1):  # their names would leave no room
        table.add_column(str(number), justify="right")
    table.add_column("Points", justify="right")
    for grading in gradings:
        points = (f"{grading.points_of(problem):.1f}" for problem in problems)
        table.add_row(Text(grading.submission), *points, f"{grading.points:.1f}")
    return table


def findings(gradings: Iterable[Grading]) -> Iterator[str]:
    """List what staff should look at: new names, what the rules forbid, and what staff decided."""
    for grading in gradings:
        name, notes = grading.submission, grading.notes
        if name != safe_name(Path(grading.path).name):
            yield f"{printable(grading.path)} is reported as {name}"
        if notes.refused:
            yield f"REFUSED, not run, no points: {name}: {notes.refused}"
        for problem, calls in notes.forbidden.items():
            decided = f"overruled: {grading.overruled[problem]}" if problem in grading.overruled else "VIOLATION"
            yield f"{decided}: {name}, {problem}: {'; '.join(calls)}"
        for problem, adjusted in grading.adjusted.items():
            yield f"adjusted by {adjusted.points:+g}: {name}, {problem}: {adjusted.because}"
        for remark in notes.taken_in:
            yield f"remark: {name}: {remark}"


def _passed(results: Iterable[Result]) -> int:
    return sum(result.passed for result in results)

"""Hints, one step at a time."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import Problem


def render_hints(problem: Problem, steps: int) -> Group:
    """The first `steps` hints of a problem as rich prints them."""
    hints = Table.grid(padding=(0, 1))
    for step, hint in enumerate(problem.hints[:steps], start=1):
        hints.add_row(f" {step}.", Text(hint))
    return Group(Text(f"Hints for {problem.id}, {steps} of {len(problem.hints)}", "bold"), hints)

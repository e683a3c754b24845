"""The stages of `cs336 staff verify`: each says what it does and how far it is, and an error stops none of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

T = TypeVar("T")

LINES = 4  # of a stage, where there is no terminal
REDRAWN = 0.1  # seconds between two drawings of the bar


@dataclass
class Stage:
    """One stage: how far it is, and what is wrong.

    Attributes:
        show: called whenever something has changed.
        done, total: units of work; both are 0 where nobody counts.
        errors: what is wrong, one line each.
    """

    show: Callable[["Stage"], None] = lambda stage: None
    done: int = 0
    total: int = 0
    errors: list[str] = field(default_factory=list)

    def track(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items, each a unit of work."""
        self.total = len(items)
        for self.done, item in enumerate(items):
            self.show(self)
            yield item
        self.done = self.total
        self.show(self)

    def error(self, text: str) -> None:
        """Record what is wrong."""
        self.errors.append(text)
        self.show(self)

    def __str__(self) -> str:
        return f"{self.done} of {self.total}, {count(self.errors)}" if self.total else count(self.errors)


class Stages:
    """Runs one stage after the other and keeps them, with their errors."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stages: list[Stage] = []

    @property
    def errors(self) -> list[str]:
        return [error for stage in self._stages for error in stage.errors]

    def run(self, title: str, work: Callable[[Stage], T]) -> T | None:
        """Do the work of the next stage and return what it gives; an exception is one more error, and gives None.

        The very first error is printed at once, for those who would rather stop and correct it.
        """
        stage = Stage()
        self._stages.append(stage)
        self._console.print(Text(f"{len(self._stages)}. {title}"))
        start, given = time.monotonic(), None
        with _bar(self._console) if self._console.is_terminal else _lines(self._console) as draw:
            told = bool(self.errors)

            def show(stage: Stage) -> None:
                nonlocal told
                if stage.errors and not told:
                    told = True
                    self._console.print(Text(f"   first error: {stage.errors[0]}", "red"))
                draw(stage)

            stage.show = show
            try:
                given = work(stage)
            except Exception as error:
                stage.error(f"stage {len(self._stages)} ended early: {type(error).__name__}: {error}")
        seconds = time.monotonic() - start
        self._console.print(Text(f"   {stage}, {seconds:.0f} s", "red" if stage.errors else "green"))
        return given


def count(errors: Sequence[str]) -> str:
    """Say how many there are."""
    return f"{len(errors)} error{'s' * (len(errors) > 1)}" if errors else "no errors"


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[Stage], None]]:
    told = 0

    def draw(stage: Stage) -> None:
        nonlocal told
        part = stage.done * LINES // max(1, stage.total)
        if told < part < LINES:  # the last line comes when the stage has ended
            told = part
            console.print(Text(f"   {stage}"))

    yield draw


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Stage], None]]:
    # Drawn when something changes: a thread that draws must not be there when a process is forked.
    columns = (TextColumn("  "), BarColumn(), TextColumn("{task.description}"))
    drawn = 0.0
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task("", total=None)

        def draw(stage: Stage) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > REDRAWN:
                drawn = time.monotonic()
                bar.update(task, description=str(stage), completed=stage.done, total=stage.total or None, refresh=True)

        yield draw

"""The stages of `cs336 staff verify`: each says what it does and how far it is, and an error stops none of them."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

T = TypeVar("T")
R = TypeVar("R")

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

    def map(self, work: Callable[[T], R], items: Sequence[T], chunk: int = 1) -> Iterator[R]:
        """Do the work for each item, in a fork for each processor, and yield what it gives, in the order of the items.

        Args:
            work: it and the items are not pickled, but what it gives is.
            items: each is a unit of work.
            chunk: as many in a row are done in the same fork.
        """
        self.total = len(items)
        self.show(self)
        processors = len(os.sched_getaffinity(0))
        with ProcessPoolExecutor(processors, get_context("fork"), _share, (work, items)) as forks:
            for given in forks.map(_do, range(len(items)), chunksize=chunk):
                yield given
                self.done += 1
                self.show(self)

    def check(self, work: Callable[[T], Iterable[str]], items: Sequence[T], chunk: int = 1) -> None:
        """Do the work for each item in the same way, and record what it says is wrong."""
        for errors in self.map(lambda item: list(work(item)), items, chunk):
            for error in errors:
                self.error(error)

    def error(self, text: str) -> None:
        """Record what is wrong."""
        self.errors.append(text)
        self.show(self)

    def __str__(self) -> str:
        return f"{self.done} of {self.total}, {count(self.errors)}" if self.total else count(self.errors)


_shared: tuple[Callable[[Any], Any], Sequence[Any]]  # of a fork: its work, and the items


def _share(work: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _shared
    _shared = work, items


def _do(number: int) -> Any:
    work, items = _shared
    return work(items[number])


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
        with _bar(self._console) as draw:
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
def _bar(console: Console) -> Iterator[Callable[[Stage], None]]:
    # Drawn when something changes: a thread that draws must not be there when a process is forked.
    columns = (TextColumn("  "), BarColumn(), TextColumn("{task.description}"))
    drawn = 0.0
    with Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def draw(stage: Stage) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > REDRAWN:
                drawn = time.monotonic()
                bar.update(task, description=str(stage), completed=stage.done, total=stage.total or None, refresh=True)

        yield draw

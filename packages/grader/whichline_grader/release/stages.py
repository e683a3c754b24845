"""The stages of `staff verify`: each says what it does and how far it is, and an error stops none of them."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.text import Text

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Stage:
    """One stage: how far it is, and what is wrong."""

    console: Console = field(default_factory=lambda: Console(quiet=True))  # a bar is drawn there
    is_first: bool = False  # whether no stage before it has an error: then its first one is printed at once
    done: int = 0  # units of work; both are 0 where nobody counts
    total: int = 0
    errors: list[str] = field(default_factory=list)  # what is wrong, one line each

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Do the work for each item, in a fork for each processor; yield what it gives, the only thing pickled."""
        self.total = len(items)
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork"), _share, (work, items)) as forks:
            given = forks.map(_do, range(len(items)))
            hidden = not self.console.is_terminal
            # A thread that draws must not be there when a process is forked.
            for each in track(
                given, "  ", self.total, auto_refresh=False, console=self.console, transient=True, disable=hidden
            ):
                self.done += 1
                yield each

    def check(self, work: Callable[[T], Iterable[str]], items: Sequence[T]) -> None:
        """Do the work for each item in the same way, and record what it says is wrong."""
        for errors in self.map(lambda item: list(work(item)), items):
            self.error(*errors)

    def error(self, *texts: str) -> None:
        if self.is_first and not self.errors and texts:
            self.console.print(Text(f"   first error: {texts[0]}", "red"))
        self.errors += texts

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
    """Runs one stage after the other and keeps their errors."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._run = 0
        self.errors: list[str] = []

    def run(self, title: str, work: Callable[[Stage], T]) -> T | None:
        """Do the work of the next stage and return what it gives; an exception is one more error, and gives None."""
        self._run += 1
        self._console.print(Text(f"{self._run}. {title}"))
        stage, start, given = Stage(self._console, is_first=not self.errors), time.monotonic(), None
        try:
            given = work(stage)
        except Exception as error:
            stage.error(f"stage {self._run} ended early: {type(error).__name__}: {error}")
        self.errors += stage.errors
        self._console.print(Text(f"   {stage}, {time.monotonic() - start:.0f} s", "red" if stage.errors else "green"))
        return given


def count(errors: Sequence[str]) -> str:
    return f"{len(errors)} error{'s' * (len(errors) > 1)}" if errors else "no errors"

"""`check --watch`: show the board again after every save."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from rich.console import Console, RenderableType
from rich.text import Text

from whichline.checking.affected_tests import take_fingerprints
from whichline.checking.board import Score, deduct, render, render_hints, score
from whichline.checking.events import Decided, Event
from whichline.checking.keys import keys
from whichline.checking.runner import Forks, Run, Spares
from whichline.checking.saves import Saves, events
from whichline.engine.assignment import Problem, is_own_code, load_problems
from whichline.engine.finding import Finding

LOOK_EVERY = 1.0  # seconds between looks, since some file systems do not report saves
LONG = 2.0  # seconds; the reference needs milliseconds for any test


def watch(root: Path, chosen: Collection[str], console: Console, *, spare: bool) -> None:
    """Show the board of the chosen problems, at once and after every save, until q or Ctrl-C.

    With `spare`, each run has a separate process that has already imported torch, and is no fork. AssignmentError if
    `assignment.toml` was changed and cannot be used any more.
    """
    with ExitStack() as stack:
        board = WatchedBoard(root, chosen, console, Spares if spare else Forks)
        stack.callback(lambda: board.runner.close())  # it may be another one by then
        stack.enter_context(events(root, lambda: board.todo.put(board.look)))
        if sys.stdin.isatty():
            actions = {"h": board.hint, "n": board.next_problem, "a": board.all_problems, "q": None}
            stack.enter_context(keys(lambda key: board.todo.put(actions.get(key, board.look))))
        board.show()
        board.run()
        due = time.monotonic() + LOOK_EVERY
        while True:
            try:
                act = board.todo.get(timeout=max(due - time.monotonic(), 0))
            except Empty:
                act, due = board.look, time.monotonic() + LOOK_EVERY
            if act is None:
                return
            act()


class WatchedBoard:
    """What the screen shows, the current run, and `todo`, the calls that other threads ask for; None ends the watch."""

    def __init__(self, root: Path, chosen: Collection[str], console: Console, forks: type[Forks | Spares]) -> None:
        self.root, self.chosen, self.console = root, chosen, console
        self.todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.new_runner = lambda: forks(root, lambda event: self.todo.put(partial(self.hear, *event)))
        self.saves = Saves(root)
        self.problems = self._load_problems()
        self.whole = self.problems.keys() == load_problems(root).keys()
        self.focus = ""  # the only problem in view; "" shows all
        self.scores: dict[str, Score] = {}  # the latest of each problem
        self.fingerprints: dict[str, str] = {}  # of each problem's code in its last run, if it was the student's own
        self.begun: dict[str, str] = {}  # of each problem's code in the current run
        self.hints: Counter[str] = Counter()  # how many of each problem are shown
        self.body: RenderableType = "Importing torch and collecting the public tests"
        self.when = ""  # when the last run ended and how long it took; or the progress of this one
        self.current = Run(0, status=0)
        self.started = 0.0
        self.runner = self.new_runner()

    def run(self, changed: Collection[Path] = ()) -> None:
        """Start a run of the problems in view; it replaces the current one.

        Problems in the changed files come first. Problems that passed and that the change cannot reach are not run.
        """
        self.started = time.monotonic()
        names = {path.as_posix() for path in changed}
        first = sorted(self._in_view(), key=lambda problem: names.isdisjoint(problem.files))
        self.begun = take_fingerprints(self.root, first)
        is_code = bool(changed) and all(path.suffix == ".py" for path in changed)
        kept = [problem.id for problem in first if is_code and self._stays(problem.id)]
        chosen = [problem.id for problem in first if problem.id not in kept]
        for id in chosen:
            self.fingerprints.pop(id, None)
        self.current = Run(self.current.number + 1, decided={*kept})
        self.runner.start(self.current.number, chosen, kept=kept)

    def _stays(self, problem: str) -> bool:
        """Tell whether a problem passed in its last run, and its code has not changed since."""
        is_same = self.begun.get(problem, "") == self.fingerprints.get(problem)
        return is_same and self.scores[problem].first_failure is None

    def look(self) -> None:
        """Run again if a file was saved; if a run takes long, show its progress."""
        if changed := self.saves.look():
            if not all(map(is_own_code, changed)):
                self.runner.close()  # it has loaded the old tests
                self.runner = self.new_runner()
                self.problems = self._load_problems()
            self.run(changed)
        elif self.current.status is None and self._seconds() > LOOK_EVERY:
            self.when = f"{self.current.progress} · "
            self._show_results()

    def hear(self, run: int, event: Event) -> None:
        """Hear about the current run, and show each problem as soon as its tests have ended."""
        if run != self.current.number or self.current.status is not None:
            return
        self.current.hear(event)
        if self.current.status is not None:
            if not self.current.notes.forbidden_work:
                self.fingerprints |= {id: self.begun[id] for id in self.current.decided & self.begun.keys()}
            self.when = f"{datetime.now():%H:%M:%S}, {self._seconds():.2f} s · "
            self._show_results()
        elif isinstance(event, Decided | Finding):
            self.when = f"{self.current.progress} · "
            self._show_results()

    def hint(self) -> None:
        if problem := self._hinted():
            self.hints[problem.id] = min(self.hints[problem.id] + 1, len(problem.hints))
            self.show()

    def next_problem(self) -> None:
        """Show only the next problem that does not pass yet, if there is one."""
        if unsolved := self._unsolved():
            self.focus = unsolved[0]
            self.run()

    def all_problems(self) -> None:
        self.focus = ""
        self.run()

    def show(self) -> None:
        """Print everything on a cleared screen."""
        with self.console:  # everything at once, so that nothing flickers
            self.console.clear()
            self.console.print(self.body)
            if (problem := self._hinted()) and self.hints[problem.id]:
                self.console.print(Text(), render_hints(problem, self.hints[problem.id]), sep="\n")
            self.console.print(f"\n{self.when}h hint · n next problem · a all · q quit", style="dim", highlight=False)

    def _show_results(self) -> None:
        run, seconds = self.current, self.current.running or 0
        is_long = seconds >= LONG
        if run.broken:
            self.body = Text(f"The tests could not start\n{run.broken}")
        elif run.results:
            is_over = run.status is not None or is_long
            results = run.so_far(f"has been running for {seconds:.0f} s") if is_over else run.results.values()
            scores = score(self._in_view(), results, run.explanations)
            new = {each.problem.id: each for each in deduct(scores, run.notes.deducted)}
            if run.status is None:
                new = {id: replace(each, ended=id in run.decided) for id, each in new.items()}
            if run.status is None and self._seconds() < LOOK_EVERY:  # the others keep their last score
                new = {id: each if id in run.decided else self.scores.get(id, each) for id, each in new.items()}
            self.scores |= new
            self.body = render(list(new.values()), run, self.root, whole=not self.focus and self.whole)
        elif run.status is None:
            what = "torch" if run.running is None else "your files"
            endless = f"{run.line}: is there an endless loop at the top of a file?" if is_long else ""
            self.body = f"Importing {what}, {seconds or self._seconds():.0f} s so far{endless}"
        else:
            self.body = "The tests could not start; uv run pytest says why"
        self.show()

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    def _load_problems(self) -> dict[str, Problem]:
        return {id: problem for id, problem in load_problems(self.root).items() if id in self.chosen}

    def _in_view(self) -> list[Problem]:
        return [problem for problem in self.problems.values() if self.focus in ("", problem.id)]

    def _unsolved(self) -> list[str]:
        """The problems that do not pass yet: those after the one in view, those before it, and last this one."""
        ids = list(self.problems)
        after = ids.index(self.focus) + 1 if self.focus in ids else 0
        return [id for id in ids[after:] + ids[:after] if id not in self.scores or self.scores[id].first_failure]

    def _hinted(self) -> Problem | None:
        """The problem whose hints are shown: the first in view that does not pass yet."""
        unsolved = self._unsolved()
        return next((problem for problem in self._in_view() if problem.id in unsolved), None)

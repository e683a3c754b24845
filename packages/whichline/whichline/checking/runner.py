"""Run the public tests in another process (`whichline.checking.process`), one run at a time."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

import click
from rich.console import Console
from rich.text import Text

from whichline.checking import events
from whichline.checking.watchdog import LONG, describe_time_limit
from whichline.engine.finding import Finding
from whichline.engine.result import Outcome, Result

START = "import whichline.quick_start; from whichline.checking.process import main; main()"
# Called from another thread with each event and the number of its run.
Listener = Callable[[tuple[int, events.Event]], None]


@dataclass
class Run:
    """The state of one run."""

    number: int
    running: float | None = None  # seconds of the present import, test or search; None while torch is imported
    line: str = ""  # the student's line that it has reached, in words
    looking: str = ""  # the problem that is searched for mistakes at present
    results: dict[str, Result] = field(default_factory=dict)  # by test, also of tests that have not ended
    explanations: list[Finding] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)  # the problems whose tests have ended
    printed: dict[str, list[str]] = field(default_factory=dict)  # the last lines, by test
    notes: events.Notes = field(default_factory=events.Notes)
    errors: list[str] = field(default_factory=list)  # of the search itself, for staff
    broken: str = ""  # why the student's files cannot be imported
    status: int | None = None  # the exit status, if it has ended

    def hear(self, event: events.Event) -> None:
        """Update the state from what the run wrote."""
        match event:
            case events.Busy(seconds, line):
                self.running, self.line = seconds, line
            case Result():
                self.running, self.line = 0.0, ""
                self.results[event.test] = event
            case Finding():
                known = {(each.id, each.file, each.line): each for each in (*self.explanations, event)}
                self.explanations = [*known.values()]
            case events.Printed(test, lines):
                self.printed[test] = lines
            case events.Decided(problem):
                self.decided.add(problem)
            case events.Notes():
                self.notes = event
            case events.Looking(problem):
                self.running, self.line, self.looking = 0.0, "", problem
            case events.Searched(errors):
                self.looking, self.errors = "", errors
            case events.Broken(why):
                self.broken = why
            case events.Ended(status):
                self.status = status

    @property
    def progress(self) -> str:
        """Say what the run is doing."""
        if not self.results:
            return "Importing torch and your files"
        if self.looking:
            return f"Looking for what is wrong in {self.looking}"
        return f"{len(self.results) - len(list(self._not_run()))} of {len(self.results)} tests"

    @property
    def current_test(self) -> str:
        """The name of the test that is running, or what runs instead of one."""
        if self.looking:
            return f"The search for what is wrong in {self.looking}"
        return next((result.test for result in self._not_run()), "The import of your files")

    def so_far(self, interrupted: str) -> list[Result]:
        """A result for each test; the one that was running fails, as `interrupted` says if the run has not ended."""
        headline = f"the process ended during this test, with exit status {self.status}"
        if self.status is None:
            headline = f"{interrupted}{self.line}: is there an endless loop in your code?"
        results = dict(self.results)
        if not self.looking and (test := next(self._not_run(), None)):
            results[test.test] = replace(test, outcome=Outcome.FAILED, headline=headline)
        return list(results.values())

    def _not_run(self) -> Iterator[Result]:
        return (result for result in self.results.values() if result.outcome is Outcome.NOT_RUN)

    def results_or_error(self) -> list[Result]:
        """The results of a run that has ended, by itself or by Ctrl-C; click.ClickException if no test could be run."""
        if self.broken:
            raise click.ClickException(f"the tests could not start\n{self.broken}")
        if not self.results:
            if self.status is not None:
                ended = f"the process ended with status {self.status} before the first test"
                todo = "Do your files end it\nwhen they are imported, for example with os._exit?"
                raise click.ClickException(f"the tests could not start: {ended}. {todo}")
            endless = ": is there an endless loop at the top of a file?" if self.running is not None else ""
            raise click.ClickException(f"you pressed Ctrl-C before the first test{self.line}{endless}")
        return self.so_far("you pressed Ctrl-C during this test")


class Forks:
    """Runs in forks of one process, started again if student code kills it; a new run kills the one before it."""

    def __init__(self, root: Path, listener: Listener, python: str = sys.executable) -> None:
        self.root, self.listener, self.python = root, listener, python
        self.run = 0
        self.process = self._start_process()

    def start(self, run: int, problems: Sequence[str], most: int = 1, kept: Sequence[str] | None = None) -> None:
        """Run the tests of some problems, in this order, and look for `most` explanations of each.

        Problems in `kept` passed before, and no change can reach them. If a list is given, even an empty one, results
        come before the annotations are checked.
        """
        if self.process.poll() is not None:
            self.process = self._start_process()
        self.run = run
        _ask(self.process, run, problems, most, kept)

    def close(self) -> None:
        """End the process and its fork."""
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()  # it kills its child and ends
        try:
            self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it is still importing torch, and has no child
            _kill(self.process)

    def _start_process(self) -> subprocess.Popen[bytes]:
        process = _process(self.root, "fork", self.python)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        for line in _pipe(process.stdout):
            self.listener(events.read_event(line))
        status = process.wait()
        if process is self.process:
            self.listener((self.run, events.Ended(status)))


class Spares:
    """Runs in separate processes; while one runs, the next one already imports torch."""

    def __init__(self, root: Path, listener: Listener, spare: bool = True, how: str = "once") -> None:
        self.root, self.listener = root, listener
        self.running: subprocess.Popen[bytes] | None = None
        self.spare = _process(root, how)
        self.more = spare

    def start(self, run: int, problems: Sequence[str], most: int = 1, kept: Sequence[str] | None = None) -> None:
        if self.running:
            _kill(self.running)
        self.running = self.spare
        _ask(self.running, run, problems, most, kept)
        threading.Thread(target=self._listen, args=(self.running, run), daemon=True).start()
        if self.more:
            self.spare = _process(self.root, "once")

    def close(self) -> None:
        for process in {self.running, self.spare} - {None}:
            _kill(process)

    def _listen(self, process: subprocess.Popen[bytes], run: int) -> None:
        for line in _pipe(process.stdout):
            self.listener(events.read_event(line))
        self.listener((run, events.Ended(process.wait())))


def run_once(root: Path, problems: Sequence[str], console: Console, most: int = 1, how: str = "once") -> Run:
    """Run the tests of some problems once, to the end or until Ctrl-C, after which `status` is None.

    If something takes long, the console says so, once.
    """
    heard: SimpleQueue[tuple[int, events.Event]] = SimpleQueue()
    run, runner = Run(1), Spares(root, heard.put, spare=False, how=how)
    is_shown = False
    with closing(runner), suppress(KeyboardInterrupt):
        runner.start(1, problems, most)
        with console.status(run.progress) as status:
            while run.status is None:
                with suppress(Empty):
                    run.hear(heard.get(timeout=1)[1])  # Windows hears Ctrl-C only between two waits
                status.update(run.progress)
                if (run.running or 0) >= LONG and not is_shown:
                    is_shown = True
                    console.print(Text(describe_time_limit(run.current_test, run.running or 0, run.line)))
    return run


def _process(root: Path, how: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
    """Start the process in a new session: Ctrl-C does not reach it, and it can be killed with all its children."""
    return subprocess.Popen(
        [python, "-P", "-c", START, how],  # with -P a student's typing.py does not hide Python's own
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    )


def _ask(process: subprocess.Popen[bytes], run: int, ids: Sequence[str], most: int, kept: Sequence[str] | None) -> None:
    how = {"most": most, "kept": kept or [], "early": kept is not None}
    with suppress(BrokenPipeError):  # it has ended, which its thread reports
        _pipe(process.stdin).write(json.dumps({"run": run, "problems": ids, **how}).encode() + b"\n")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe

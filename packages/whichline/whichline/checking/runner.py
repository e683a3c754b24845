"""Runs of the public tests in processes of their own (`whichline.checking.process`), one run at a time."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

import click
from rich.console import Console
from rich.text import Text

from whichline.checking.watchdog import LONG, describe_time_limit
from whichline.engine.finding import Finding
from whichline.engine.result import Outcome, Result, result_from_json

START = "import whichline.quick_start; from whichline.checking.process import main; main()"
# Called from another thread with each line that a run says.
Listener = Callable[[dict[str, Any]], None]


@dataclass
class Run:
    """One run, as far as it has got.

    Args:
        number: which run it is.
        running: seconds of what is under way, an import of the student's files, a test or a search; None while
            torch is imported.
        line: the student's line that it has reached, in words.
        looking: the problem in which the search for what is wrong is under way, if one is.
        results: by test; of those that have not ended yet, too.
        explanations: what was found.
        decided: the problems whose tests have ended.
        printed: the last lines that the student's code printed in a test that failed, for the first of each problem.
        not_own_work: what the student uses and must write: a title and lines of text, if there is anything.
        deducted: the points that will not count for that, by problem.
        undone: what the student's files change for all code, in the same form.
        errors: those of the search itself, in words, for staff.
        broken: why the student's files cannot be imported, if they cannot.
        status: the exit status, once it has ended.
    """

    number: int
    running: float | None = None
    line: str = ""
    looking: str = ""
    results: dict[str, Result] = field(default_factory=dict)
    explanations: list[Finding] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)
    printed: dict[str, list[str]] = field(default_factory=dict)
    not_own_work: list[str] = field(default_factory=list)
    deducted: dict[str, float] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: str = ""
    status: int | None = None

    def hear(self, line: dict[str, Any]) -> None:
        """Take in a line of this run's."""
        match line:
            case {"running": seconds, "line": place}:
                self.running, self.line = seconds, place
            case {"looking": problem}:
                self.running, self.line, self.looking = 0.0, "", problem
            case {"planned": planned}:
                self.running = 0.0
                self.results = {result.test: result for result in map(result_from_json, planned)}
            case {"result": text}:
                result = result_from_json(text)
                self.running, self.line = 0.0, ""
                self.results[result.test] = result
            case {"explanation": text}:
                new = Finding.from_json(text)
                known = {(each.id, each.file, each.line): each for each in self.explanations}
                self.explanations = [*(known | {(new.id, new.file, new.line): new}).values()]
            case {"decided": problem}:
                self.decided.add(problem)
            case {"printed": lines, "test": test}:
                self.printed[test] = lines
            case {"not_own_work": lines, "deducted": points}:
                self.not_own_work, self.deducted = lines, points
            case {"undone": lines}:
                self.undone = lines
            case {"errors": lines}:
                self.errors = lines
            case {"broken": text}:
                self.broken = text
            case {"ended": status}:
                self.status = status

    @property
    def progress(self) -> str:
        """Say how far it has got."""
        if not self.results:
            return "Importing torch and your files"
        if self.looking:
            return f"Looking for what is wrong in {self.looking}"
        return f"{len(self.results) - len(list(self._not_run()))} of {len(self.results)} tests"

    @property
    def current_test(self) -> str:
        """A name for what is running."""
        if self.looking:
            return f"The search for what is wrong in {self.looking}"
        return next((result.test for result in self._not_run()), "The import of your files")

    def so_far(self, interrupted: str) -> list[Result]:
        """A result for each test; the one that was running when the run ended failed with the words `interrupted`."""
        results = dict(self.results)
        if not self.looking and (test := next(self._not_run(), None)):
            results[test.test] = replace(test, outcome=Outcome.FAILED, headline=interrupted)
        return list(results.values())

    def _not_run(self) -> Iterator[Result]:
        return (result for result in self.results.values() if result.outcome is Outcome.NOT_RUN)

    def results_or_error(self) -> list[Result]:
        """The results of a run that has ended, by itself or by Ctrl-C.

        Raises:
            click.ClickException: no test could be run.
        """
        if self.broken:
            raise click.ClickException(f"the tests could not start\n{self.broken}")
        if not self.results:
            if self.status is not None:
                raise click.ClickException(
                    f"the tests could not start: the process ended with status {self.status} before the first test. "
                    "Do your files end it\nwhen they are imported, for example with os._exit?"
                )
            endless = ": is there an endless loop at the top of a file?" if self.running is not None else ""
            raise click.ClickException(f"you pressed Ctrl-C before the first test{self.line}{endless}")
        if self.status is None:
            return self.so_far(
                f"you pressed Ctrl-C during this test{self.line}: is there an endless loop in your code?"
            )
        return self.so_far(f"the process ended during this test, with exit status {self.status}")


class Forks:
    """Runs in forks of one process, which is started again should student code kill it.

    A run that is under way when the next one starts is killed.
    """

    def __init__(self, root: Path, listener: Listener, python: str = sys.executable) -> None:
        self.root = root
        self.listener = listener
        self.python = python
        self.run = 0
        self.process = self._start_process()

    def start(self, run: int, problems: Sequence[str], most: int = 1, kept: Sequence[str] | None = None) -> None:
        """Run the tests of some problems, in this order, and give at most so many explanations for each.

        Those that are kept passed before, and nothing that they reach has changed; where some may be, the verdicts come
        before the annotations are checked.
        """
        if self.process.poll() is not None:
            self.process = self._start_process()
        self.run = run
        _send(self.process, run, problems, most, kept)

    def close(self) -> None:
        """Kill what is running or waiting."""
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
            self.listener(json.loads(line))
        status = process.wait()
        if process is self.process:
            self.listener({"run": self.run, "ended": status})


class Spares:
    """The same, but each run is in a process of its own, while the next one warms up."""

    def __init__(self, root: Path, listener: Listener, spare: bool = True, how: str = "once") -> None:
        self.root = root
        self.listener = listener
        self.running: subprocess.Popen[bytes] | None = None
        self.spare = _process(root, how)
        self.more = spare

    def start(self, run: int, problems: Sequence[str], most: int = 1, kept: Sequence[str] | None = None) -> None:
        if self.running:
            _kill(self.running)
        self.running = self.spare
        _send(self.running, run, problems, most, kept)
        threading.Thread(target=self._listen, args=(self.running, run), daemon=True).start()
        if self.more:
            self.spare = _process(self.root, "once")

    def close(self) -> None:
        for process in {self.running, self.spare} - {None}:
            _kill(process)

    def _listen(self, process: subprocess.Popen[bytes], run: int) -> None:
        for line in _pipe(process.stdout):
            self.listener(json.loads(line))
        self.listener({"run": run, "ended": process.wait()})


def run_once(root: Path, problems: Sequence[str], console: Console, most: int = 1, how: str = "once") -> Run:
    """Run the tests of some problems once, to the end or to Ctrl-C, after which `status` is None.

    What takes long is said on the console, once.
    """
    lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
    run, runner = Run(1), Spares(root, lines.put, spare=False, how=how)
    told = False
    try:
        runner.start(1, problems, most)
        with console.status(run.progress) as status:
            while run.status is None:
                with suppress(Empty):
                    run.hear(lines.get(timeout=1))  # Windows hears Ctrl-C only between two waits
                status.update(run.progress)
                if (run.running or 0) >= LONG and not told:
                    told = True
                    console.print(Text(describe_time_limit(run.current_test, run.running or 0, run.line)))
    except KeyboardInterrupt:
        pass
    finally:
        runner.close()
    return run


def _process(root: Path, how: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
    """A session of its own keeps Ctrl-C away from it, and lets all that it starts be killed together."""
    return subprocess.Popen(
        [python, "-P", "-c", START, how],  # a student's typing.py does not hide Python's own
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    )


def _send(
    process: subprocess.Popen[bytes], run: int, problems: Sequence[str], most: int, kept: Sequence[str] | None
) -> None:
    how = {"most": most, "kept": kept or [], "early": kept is not None}
    line = json.dumps({"run": run, "problems": problems, **how})
    with suppress(BrokenPipeError):  # it has ended, which its thread reports
        _pipe(process.stdin).write(line.encode() + b"\n")


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

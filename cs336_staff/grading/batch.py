"""Grade many submissions: each in a fork of the process that holds the collected suite, several at a time.

Only this process writes to the gradebook, one submission in one transaction. It may be killed at any moment: what is in
the gradebook is whole, and what is not is graded when the batch is run again.
"""

import fcntl
import hashlib
import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from cs336_staff.gradebook import Gradebook, Grading, Row
from cs336_staff.grading.client import Limits, Worker
from cs336_staff.grading.explain import forbidden_calls
from cs336_staff.grading.plan import Planned
from cs336_staff.grading.report import safe_name, write_reports
from cs336_staff.grading.sandbox import Sandbox
from cs336_staff.grading.submission import Refused, Submission, take_in
from cs336_staff.grading.suite import Suite
from cs336_staff.grading.verdict import Verdict

ATTEMPTS = 3
CHUNK = 1 << 16


class BatchError(Exception):
    """The batch cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class Fault:
    """A submission that could not be graded, and not by its own doing."""

    submission: str
    reason: str


@dataclass
class Progress:
    """How far a batch is.

    Attributes:
        names: the submissions of the batch.
        done: graded now or before.
        already: of these, graded before.
        running: being graded.
        failed: graded, without full points.
        faults: those that are no grade.
    """

    names: tuple[str, ...]
    done: int = 0
    already: int = 0
    running: int = 0
    failed: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.names)


@dataclass
class _Running:
    """A fork that grades one submission."""

    path: Path
    name: str
    content: str
    attempt: int
    pid: int
    pipe: int
    started: datetime
    clock: float
    said: bytearray


def grade(
    suite: Suite,
    sandbox: Sandbox,
    paths: Sequence[Path],
    out: Path,
    jobs: int = 1,
    rerun: bool = False,
    limits: Limits | None = None,
    show: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Grade each submission in `paths` that `out` has no grading of, by this suite and for this content.

    Args:
        suite: the collected suite.
        sandbox: where submissions run.
        paths: what was handed in.
        out: gets `gradebook.sqlite` and a folder with the reports of each submission.
        jobs: how many are graded at the same time.
        rerun: grade again what is graded already.
        limits: what a submission may use.
        show: called whenever something has changed.

    Raises:
        BatchError: two submissions have the same name, or another batch writes to `out`.
    """
    names = _names(paths)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out), Gradebook(out / "gradebook.sqlite") as gradebook:
        return _Batch(suite, sandbox, gradebook, out, limits).run(names, jobs, rerun, show)


class _Batch:
    def __init__(self, suite: Suite, sandbox: Sandbox, gradebook: Gradebook, out: Path, limits: Limits | None) -> None:
        self.suite, self.sandbox, self.gradebook, self.out, self.limits = suite, sandbox, gradebook, out, limits
        self.waiting: deque[tuple[str, Path, int]] = deque()
        self.running: dict[int, _Running] = {}

    def run(self, names: dict[str, Path], jobs: int, rerun: bool, show: Callable[[Progress], None]) -> Progress:
        self.progress = Progress(tuple(names))
        self.waiting.extend((name, path, 1) for name, path in names.items())
        try:
            while self.waiting or self.running:
                if self.waiting and len(self.running) < jobs:
                    self._start(*self.waiting.popleft(), rerun)
                else:
                    self._listen()
                self.progress.running = len(self.running)
                show(self.progress)
        finally:
            for running in self.running.values():
                os.kill(running.pid, signal.SIGKILL)
                os.waitpid(running.pid, 0)
        return self.progress

    def _start(self, name: str, path: Path, attempt: int, rerun: bool) -> None:
        """Fork, unless the gradebook has it or it is refused."""
        started, clock = datetime.now(UTC), time.monotonic()
        try:
            submission: Submission | Refused = take_in(path)
        except Refused as refused:
            submission = refused
        content = submission.sha256 if isinstance(submission, Submission) else _content_of_refused(path)
        if not rerun and (grading := self.gradebook.find(name, content, self.suite.sha256)):
            self.progress.already += 1
            self._count(grading)
            return
        if isinstance(submission, Refused):
            verdicts = [Verdict(test.name, "failed", 0.0, f"not run: {submission}") for test in self.suite.planned]
            about = {"refused": str(submission)}
            self._record(name, path, content, started, clock, verdicts, about)
            return
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            _grade_and_exit(self.suite, self.sandbox, submission, self.limits, write)
        os.close(write)
        self.running[read] = _Running(path, name, content, attempt, pid, read, started, clock, bytearray())

    def _listen(self) -> None:
        """Wait until a fork says something or ends."""
        for pipe in select.select(list(self.running), [], [])[0]:
            running = self.running[pipe]
            data = os.read(pipe, CHUNK)
            running.said += data
            if not data:
                del self.running[pipe]
                os.close(pipe)
                _, status = os.waitpid(running.pid, 0)
                self._finish(running, os.waitstatus_to_exitcode(status))

    def _finish(self, running: _Running, exit_status: int) -> None:
        # The last line may be cut off, when the fork was killed.
        lines = [json.loads(line) for line in bytes(running.said).split(b"\n")[:-1]]
        verdicts = {line["verdict"]["name"]: Verdict(**line["verdict"]) for line in lines if "verdict" in line}
        planned = [verdicts.get(test.name) for test in self.suite.planned]
        about = next((line["about"] for line in lines if "about" in line), None)
        fault = next((line["fault"] for line in lines if "fault" in line), None)
        if error := next((verdict for verdict in verdicts.values() if verdict.outcome == "error"), None):
            fault = f"{error.name}: {error.details}"
        if fault is None and (about is None or None in planned):
            fault = f"the grading process ended with exit status {exit_status}"
        if fault is None:
            whole = [verdict for verdict in planned if verdict is not None]
            self._record(running.name, running.path, running.content, running.started, running.clock, whole, about)
        elif running.attempt < ATTEMPTS:
            self.waiting.append((running.name, running.path, running.attempt + 1))
        else:
            self.progress.done += 1
            self.progress.faults.append(Fault(running.name, fault))

    def _record(
        self,
        name: str,
        path: Path,
        content: str,
        started: datetime,
        clock: float,
        verdicts: list[Verdict],
        about: dict[str, Any] | None,
    ) -> None:
        about = about or {}
        rows = [
            _row(test, verdict, about.get("forbidden", {}).get(test.problem))
            for test, verdict in zip(self.suite.planned, verdicts, strict=True)
        ]
        seconds = time.monotonic() - clock
        layer = "+".join((self.sandbox.achieved.layer, *self.sandbox.achieved.parts))
        suite = self.suite
        grading = Grading(name, str(path), content, suite.sha256, suite.seed, layer, started, seconds, about, rows)
        self.gradebook.add(grading)
        self._count(grading)

    def _count(self, grading: Grading) -> None:
        """The reports are written from the gradebook's entry, again if need be: the batch may have died between."""
        write_reports(self.out / grading.submission, grading, self.suite.problems)
        self.progress.done += 1
        self.progress.failed += any(row.outcome != "passed" for row in grading.rows)


def _grade_and_exit(
    suite: Suite, sandbox: Sandbox, submission: Submission, limits: Limits | None, pipe: int
) -> NoReturn:
    """In the fork: write a line for each verdict, and one about the submission."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills this process
    try:
        with Worker(sandbox, submission, limits) as worker:
            about: dict[str, Any] = {"forbidden": {}}
            seen: set[str] = set()
            for hidden in (False, True):
                for test, verdict in suite.run(worker, [test for test in suite.planned if test.hidden == hidden]):
                    _say(pipe, verdict=asdict(verdict))
                    calls = forbidden_calls(worker)
                    if new := calls - seen:
                        about["forbidden"].setdefault(test.problem, []).extend(sorted(new))
                        seen |= new
                if not hidden:  # what it prints from here on may spell hidden inputs
                    about |= {"stdout": worker.stdout, "stderr": worker.stderr, "missing": sorted(worker.missing)}
            _say(pipe, about=about)
    except BaseException as error:
        _say(pipe, fault=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _row(test: Planned, verdict: Verdict, forbidden: list[str] | None) -> Row:
    """A test that passed by a call that its problem forbids is a violation."""
    outcome, message = verdict.outcome, verdict.message
    if outcome == "passed" and forbidden:
        outcome, message = "violation", "passed, but not by your own work:\n" + "\n".join(forbidden)
    return Row(test.name, test.problem, test.hidden, test.points, outcome, verdict.seconds, message, verdict.details)


def _say(pipe: int, **line: Any) -> None:
    data = memoryview(json.dumps(line).encode() + b"\n")
    while data:
        data = data[os.write(pipe, data) :]


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    names: dict[str, Path] = {}
    for path in paths:
        name = safe_name(path.resolve().name)
        if name in names:
            raise BatchError(f"{names[name]} and {path} would both be reported as {name}; rename one of them")
        names[name] = path
    return names


def _content_of_refused(path: Path) -> str:
    """sha256 of a file, or of the names in a folder: what was refused must be looked at again once it has changed."""
    digest = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    elif path.is_dir():
        for inside in sorted(path.rglob("*")):
            digest.update(f"{inside.relative_to(path)} {inside.lstat().st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the lock of `out`; the kernel lets go of it however this process ends."""
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BatchError(f"another batch is writing to {out}; wait for it, or choose another --out") from None
        yield

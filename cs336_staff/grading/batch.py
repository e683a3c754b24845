"""Grade many submissions: each in a fork of the process that holds the collected suite, several at a time.

Only this process writes to the gradebook, one submission in one transaction. It may be killed at any moment: what is in
the gradebook is whole, and what is not is graded when the batch is run again.
"""

import fcntl
import gc
import hashlib
import json
import os
import re
import resource
import select
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from cs336_kit.engine.result import Check, Outcome, Result, result_from_json
from cs336_kit.examination.problems import explain
from cs336_kit.rules.watch import Use
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.grading.gradebook import Gradebook, GradebookError, Grading, Notes, notes_from_json
from cs336_staff.grading.identity import HandedIn, check_claims, handed_in, together
from cs336_staff.grading.report import safe_name, write_all_reports, write_reports
from cs336_staff.grading.rules import judge
from cs336_staff.grading.suite import GradedSuite, results_of_refused
from cs336_staff.grading.weights import measure_weights
from cs336_staff.sandbox.confinement import Sandbox, SandboxError
from cs336_staff.sandbox.submission import Refused, Submission, take_in
from cs336_staff.sandbox.worker import Limits, Starved, Worker

ATTEMPTS = 3
EXAMINATION = Limits(call_seconds=2, seconds=10)
# Processor time and private memory of this side for one submission, whose replies it reads and compares.
TRUSTED_SECONDS, TRUSTED_BYTES = 120, 4 << 30
CHUNK = 1 << 16
HASHED = re.compile(r".*-[0-9a-f]{12}")


@dataclass(frozen=True)
class Fault:
    """A submission that could not be graded, and not by its own doing."""

    submission: str
    reason: str


@dataclass
class Progress:
    """The progress of a batch.

    Attributes:
        names: the submissions of the batch, and where each lies.
        done: graded now or before.
        already: of these, graded before.
        running: being graded.
        below: graded, without full points.
        faults: those that could not be graded.
    """

    names: dict[str, Path]
    done: int = 0
    already: int = 0
    running: int = 0
    below: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class _Attempt:
    """To grade one submission."""

    name: str
    path: Path
    content: str
    number: int
    started: datetime
    clock: float


@dataclass
class _Fork:
    """The process of an attempt, and what it has said so far."""

    attempt: _Attempt
    pid: int
    said: bytearray = field(default_factory=bytearray)


def grade(
    suite: GradedSuite,
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
        limits: what a submission may use, if not what the course says.
        show: called whenever something has changed.

    Raises:
        GradebookError: another batch writes to `out`.
        RosterError: two submissions are by one student.
        SandboxError: the sandbox has ended, and does not start again.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out), Gradebook(out / "gradebook.sqlite") as gradebook:
        files = together(dict.fromkeys(path.resolve() for path in paths))
        names = _names(list(files), gradebook.paths())
        check_claims(names)
        if gradebook.score_with(suite.problems, {test.function for test in suite.suite.tests}):
            write_all_reports(out, gradebook, suite.problems)
        return _Batch(suite, sandbox, gradebook, out, limits or suite.limits, files).run(names, jobs, rerun, show)


class _Batch:
    def __init__(
        self,
        suite: GradedSuite,
        sandbox: Sandbox,
        gradebook: Gradebook,
        out: Path,
        limits: Limits,
        files: Mapping[Path, Mapping[str, Path]],
    ) -> None:
        self.files = files  # of each submission that came file by file
        self.suite, self.sandbox, self.gradebook, self.out, self.limits = suite, sandbox, gradebook, out, limits
        self.waiting: deque[tuple[str, Path, int]] = deque()
        self.forks: dict[int, _Fork] = {}  # by the pipe that each writes to

    def run(self, names: dict[str, Path], jobs: int, rerun: bool, show: Callable[[Progress], None]) -> Progress:
        self.progress = Progress(names)
        self.waiting.extend((name, path, 1) for name, path in names.items())
        gc.collect()
        gc.freeze()  # a fork that collects garbage copies every page that it looks at
        try:
            while self.waiting or self.forks:
                if self.waiting and len(self.forks) < jobs:
                    self._start(*self.waiting.popleft(), rerun)
                else:
                    self._listen()
                self.progress.running = len(self.forks)
                show(self.progress)
        finally:
            for fork in self.forks.values():
                os.kill(fork.pid, signal.SIGKILL)
                os.waitpid(fork.pid, 0)
        return self.progress

    def _start(self, name: str, path: Path, number: int, rerun: bool) -> None:
        """Fork, unless the gradebook has it or it is refused."""
        started, clock = datetime.now(UTC), time.monotonic()
        try:
            submission: Submission | Refused = take_in(path, self.files[path])
            content = submission.sha256
        except Refused as refused:
            submission, content = refused, _content_of_refused(path)
        except OSError as error:
            self.progress.done += 1
            self.progress.faults.append(Fault(name, f"cannot be read: {error}"))
            return
        attempt = _Attempt(name, path, content, number, started, clock)
        if not rerun and (grading := self.gradebook.find(name, content, self.suite.sha256)):
            self.progress.already += 1
            self.gradebook.hand_in_again(grading, _as_text(path.resolve()), self._handed_in(attempt))
            self._report(grading)
        elif isinstance(submission, Refused):
            self._record(attempt, results_of_refused(self.suite.suite, str(submission)), Notes(refused=str(submission)))
        else:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                # Whoever held the end that is read would keep this process writing when the batch is dead.
                for pipe in (read, *self.forks):
                    os.close(pipe)
                _grade_and_exit(self.suite, self.sandbox, submission, self.limits, write)
            os.close(write)
            self.forks[read] = _Fork(attempt, pid)

    def _listen(self) -> None:
        """Wait until a fork says something or ends."""
        for pipe in select.select(list(self.forks), [], [])[0]:
            data = os.read(pipe, CHUNK)
            self.forks[pipe].said += data
            if not data:
                fork = self.forks.pop(pipe)
                os.close(pipe)
                _, status = os.waitpid(fork.pid, 0)
                self._finish(fork, os.waitstatus_to_exitcode(status))

    def _finish(self, fork: _Fork, exit_status: int) -> None:
        # The last line is cut off when the fork was killed.
        lines = [json.loads(line) for line in bytes(fork.said).split(b"\n")[:-1]]
        results = [result_from_json(line["result"]) for line in lines if "result" in line]
        notes = next((line["notes"] for line in lines if "notes" in line), None)  # the last thing that is said
        if error := next((result for result in results if result.outcome is Outcome.ERROR), None):
            fault = f"{error.test}: {error.staff or error.text}"
        elif notes is None:
            died = f"the grading process ended with exit status {exit_status}"
            fault = next((line["fault"] for line in lines if "fault" in line), died)
        else:
            self._record(fork.attempt, results, notes_from_json(notes))
            return
        try:
            self.sandbox.check()
        except SandboxError:
            self.sandbox.restart()
        attempt = fork.attempt
        if attempt.number < ATTEMPTS:
            self.waiting.append((attempt.name, attempt.path, attempt.number + 1))
        else:
            self.progress.done += 1
            self.progress.faults.append(Fault(attempt.name, fault))

    def _record(self, attempt: _Attempt, results: list[Result], notes: Notes) -> None:
        achieved = self.sandbox.achieved
        grading = Grading(
            submission=attempt.name,
            path=_as_text(attempt.path.resolve()),
            content=attempt.content,
            suite=self.suite.sha256,
            seed=self.suite.seed,
            layer="+".join((achieved.layer, *achieved.parts)),
            started=attempt.started,
            seconds=time.monotonic() - attempt.clock,
            notes=notes,
            handed_in=self._handed_in(attempt),
            results=[_charged(result, notes.forbidden.get(result.problem, ())) for result in results],
        )
        self.gradebook.add(grading)
        # As the gradebook has it: staff may have overruled a violation of the same content.
        self._report(self.gradebook.of(attempt.name) or grading)

    def _handed_in(self, attempt: _Attempt) -> HandedIn:
        """By whom; of a copy that says nothing, by whoever handed in the submission of this name before."""
        handed, before = handed_in(attempt.path, attempt.name), self.gradebook.of(attempt.name)
        if not handed.guessed or before is None or before.handed_in.guessed:
            return handed
        same = before.content == attempt.content
        return before.handed_in if same else replace(before.handed_in, at=None, late=False)

    def _report(self, grading: Grading) -> None:
        """Write the reports; from the gradebook once more, if the batch died after the entry was made."""
        write_reports(self.out / grading.submission, grading, self.suite.problems)
        self.progress.done += 1
        self.progress.below += any(not result.passed for result in grading.results if not result.bonus)


def _grade_and_exit(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, limits: Limits, pipe: int
) -> NoReturn:
    """In the fork: write a line for each result, and one with the notes."""
    resource.setrlimit(resource.RLIMIT_CPU, (TRUSTED_SECONDS, TRUSTED_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (TRUSTED_BYTES, TRUSTED_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills this process
    try:
        results: list[Result] = []
        public: dict[str, set[Use]] = {problem: set() for problem in suite.problems}
        hidden: dict[str, set[Use]] = {problem: set() for problem in suite.problems}
        notes = Notes(taken_in=submission.remarks)
        carried = CarriedForward(suite.suite)
        with Worker(sandbox, submission, limits) as worker:
            for seen in (public, hidden):
                tests = [test for test in suite.suite.tests if test.hidden == (seen is hidden)]
                for result in suite.run(worker, tests, carried):
                    _say(pipe, result=result.as_json())
                    if result.outcome is Outcome.ERROR:  # all of it is graded again
                        os._exit(0)
                    results.append(result)
                    seen[result.problem] |= worker.forbidden
                if seen is public:  # what it prints from here on may spell hidden inputs
                    missing = tuple(sorted(worker.missing))
                    notes = replace(notes, stdout=worker.stdout, stderr=worker.stderr, missing=missing)
        notes = _examined(suite, sandbox, submission, results, notes)
        _say(pipe, notes=replace(notes, forbidden=judge(public, hidden)).as_json())
    except BaseException as error:
        _say(pipe, fault=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _examined(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, results: Sequence[Result], notes: Notes
) -> Notes:
    """Note what the examinations find, in a process that has seen no hidden input, until it is starved of time."""
    with suppress(Starved), Worker(sandbox, submission, EXAMINATION) as worker:
        suite.proxy.worker = worker
        notes = replace(notes, explanations=tuple(explain(suite.suite, results)))
        notes = replace(notes, weights=measure_weights(suite.suite.calls.run_scaled_dot_product_attention))
    return notes


def _charged(result: Result, forbidden: Sequence[str]) -> Result:
    """A test that passed by a call that its problem forbids is a violation."""
    if not (result.passed and forbidden):
        return result
    headline = "passed, but not by your own work:"
    return replace(result, outcome=Outcome.VIOLATION, check=Check.RULES, headline=headline, details=tuple(forbidden))


def _say(pipe: int, **line: str) -> None:
    text = json.dumps(line, ensure_ascii=False)
    data = memoryview(text.encode(errors="replace") + b"\n")  # half a character is not text, and no database takes it
    while data:
        data = data[os.write(pipe, data) :]


def _names(paths: Sequence[Path], known: Mapping[str, str]) -> dict[str, Path]:
    """A name for each path: the one under which it was graded before, or the file's own, made safe.

    Several that are the same get a part of the hash of their path, and so does a name that looks as if it had one. A
    file of the same name from elsewhere is another attempt.

    Args:
        paths: what is graded.
        known: where each submission lay when it was graded before, by name.
    """
    before = {path: name for name, path in known.items()}
    safe = {path: safe_name(path.name) for path in dict.fromkeys(path.resolve() for path in paths)}
    count = Counter(name for path, name in safe.items() if _as_text(path) not in before)
    names: dict[str, Path] = {}
    for path, name in safe.items():
        if was := before.get(_as_text(path)):
            name = was
        elif count[name] > 1 or HASHED.fullmatch(name):
            name += f"-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
        names[name] = path
    return names


def _as_text(path: Path) -> str:
    """A name in it may be no text."""
    return os.fsencode(path).decode(errors="backslashreplace")


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
    """Hold the lock of `out`; the kernel lets go of it however this process ends, and no fork inherits it."""
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GradebookError(f"another batch is writing to {out}; wait for it, or choose another --out") from None
        yield

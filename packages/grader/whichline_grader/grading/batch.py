"""Grade many submissions, several at a time.

Only this process records gradings, one submission in one transaction. It may be killed at any moment: what is in the
gradebook is whole, and what is not is graded when the batch is run again. A submission is read when its turn comes, and
what was found is dropped once it is recorded. While one is graded, staff may decide on others.
"""

import hashlib
import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from whichline.engine.toml_file import AssignmentError
from whichline_grader.grading.answers import AnswersError, find_answers
from whichline_grader.grading.final_grades import compute_grades_of, grades, write_grades
from whichline_grader.grading.gradebook import NAME, DamagedRow, Gradebook
from whichline_grader.grading.graded import Grading, Notes
from whichline_grader.grading.identity import HandedIn, Upload, check_claims, find_uploads, handed_in, make_safe_name
from whichline_grader.grading.processes import ANSWERS, Forks, Record
from whichline_grader.grading.report import Report
from whichline_grader.grading.reports import write_reports
from whichline_grader.grading.suite import GradedSuite, list_refused_results
from whichline_grader.grading.writing import hold, write_atomically, writing
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.files import Refused
from whichline_grader.sandbox.reader import Reader
from whichline_grader.sandbox.submission import Submission

ATTEMPTS = 3
LOG = "log.jsonl"
PARTS = 10  # of a batch, after each of which grades.csv is written: it may be killed before its end
TICK = 1.0  # seconds after which `show` is called even if nothing has ended
HASHED = re.compile(r".*-[0-9a-f]{12}")


@dataclass
class Progress:
    names: Collection[str]  # the submissions of the batch
    done: int = 0  # graded now or before
    already: int = 0  # of these, graded before
    running: int = 0  # being graded
    below: int = 0  # graded, without full points
    faults: dict[str, str] = field(default_factory=dict)  # why one could not be graded, and not by its own doing
    unreported: dict[str, str] = field(default_factory=dict)  # why there is no report on one that was graded

    @property
    def total(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class _Attempt:
    """To grade one submission, for the `number`th time."""

    name: str
    work: Upload
    number: int = 1
    content: str = ""


@dataclass(frozen=True)
class How:
    """The way in which a batch is graded."""

    jobs: int = 1  # how many at a time
    rerun: bool = False  # whether to grade again what is graded already
    answers: Sequence[Path] = ()  # folders of what submissions have answered elsewhere; with any, none is asked
    show: Callable[[Progress], None] = lambda progress: None  # called whenever something has changed, and once a second
    tell: Callable[[str], None] = lambda line: None  # called with a line about each submission, as it is in the log


def grade(suite: GradedSuite, sandbox: Sandbox, paths: Sequence[Path], out: Path, how: How = How()) -> Progress:
    """Grade in `sandbox`; the rest is as for `grade_by`."""
    return grade_by(Forks(suite, sandbox), suite, paths, out, how)


def grade_by(forks: Forks, suite: GradedSuite, paths: Sequence[Path], out: Path, how: How) -> Progress:
    """Grade each submission in `paths` that `out` has no grading of, by this suite and for this content.

    In `out` there are `gradebook.sqlite`, a folder with the reports of each submission, and a log.

    CourseworkError if another batch writes to `out`, SandboxError if nothing can be graded any more, RosterError if two
    submissions are by one student, or it is not clear which platform named them.
    """
    out.mkdir(parents=True, exist_ok=True)
    taken = f"another batch is writing to {out}; wait for it, or choose another --out"
    with hold(out / ".lock", taken), Gradebook(out / NAME, suite.course.muted) as gradebook, Reader() as reader:
        gradebook.check_decisions(suite.problems)
        works = _name_submissions(find_uploads(paths, suite.course.platform), gradebook.paths())
        check_claims(works)
        with writing(out):
            gradebook.score_with(suite.problems)
        waiting = deque(_Attempt(name, work) for name, work in works.items())
        with closing(forks):  # they hold the pipe of the reader
            return _Batch(forks, how, suite, gradebook, out, reader, waiting, Progress(works.keys())).run()


@dataclass
class _Batch:
    forks: Forks
    how: How
    suite: GradedSuite
    gradebook: Gradebook
    out: Path
    reader: Reader
    waiting: deque[_Attempt]
    progress: Progress
    running: dict[str, _Attempt] = field(default_factory=dict)

    def run(self) -> Progress:
        while self.waiting or self.running:
            if self.waiting and len(self.running) < self.how.jobs:
                self._start(self.waiting.popleft())
            else:
                for name, record in self.forks.wait(TICK):
                    self._finish(self.running.pop(name), record)
            self.progress.running = len(self.running)
            self.how.show(self.progress)
        return self.progress

    def _start(self, attempt: _Attempt) -> None:
        """Submit, unless the gradebook has it or it is refused."""
        try:
            submission: Submission | Refused = self.reader.take_in(attempt.work.path, attempt.work.files)
            content = submission.sha256
        except Refused as refused:
            submission, content = refused, refused.content
        except OSError as error:
            self._give_up(attempt, f"cannot be read: {error}")
            return
        attempt = replace(attempt, content=content)
        with self._writing():
            self.gradebook.drop_damaged(attempt.name, content)
            if not self.how.rerun and (grading := self.gradebook.find(attempt.name, content, self.suite.sha256)):
                self.progress.already += 1
                self._log(attempt, "graded before")
                self.gradebook.hand_in_again(grading, _decode_path(attempt.work.path), self._identify(attempt))
                self._report(grading)
                return
        if isinstance(submission, Refused):
            why = str(submission)
            self._record(attempt, Record(list_refused_results(self.suite.suite, why), Notes(refused=why)))
        else:
            try:
                self.forks.start(attempt.name, submission, self._recall(content))
                self.running[attempt.name] = attempt
            except AnswersError as error:
                self._give_up(attempt, str(error))

    def _finish(self, attempt: _Attempt, record: Record) -> None:
        if not record.fault:
            self._record(attempt, record)
        elif attempt.number < ATTEMPTS:
            self._log(attempt, "to be tried again", seconds=round(record.seconds, 1), why=record.fault)
            self.waiting.append(replace(attempt, number=attempt.number + 1))
        else:
            self._give_up(attempt, record.fault)

    def _give_up(self, attempt: _Attempt, reason: str) -> None:
        self._log(attempt, "not graded", why=reason)
        self.progress.done += 1
        self.progress.faults[attempt.name] = reason

    def _log(self, attempt: _Attempt, what: str, **more: object) -> None:
        entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "submission": attempt.name, "what": what}
        line = json.dumps(entry | {name: each for name, each in more.items() if each})
        with (self.out / LOG).open("a") as file:
            file.write(f"{line}\n")
        self.how.tell(line)

    def _recall(self, content: str) -> bytes:
        """The record of what a submission has answered; empty if it is to be asked. AnswersError if it must not be."""
        if self.how.answers:
            return find_answers(self.how.answers, content, self.suite)
        path = self.out / ANSWERS / content
        return path.read_bytes() if path.exists() and not self.how.rerun else b""

    def _record(self, attempt: _Attempt, record: Record) -> None:
        if record.transcript:
            path = self.out / ANSWERS / attempt.content
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, record.transcript)
        handed = self._identify(attempt)
        grading = Grading(
            submission=attempt.name,
            path=_decode_path(attempt.work.path),
            content=attempt.content,
            suite=self.suite.sha256,
            seed=self.suite.release.seed("release"),
            layer=record.layer,
            started=record.started,
            seconds=record.seconds,
            notes=replace(record.notes, taken_in=(*_describe(attempt.work, handed), *record.notes.taken_in)),
            handed_in=handed,
            results=record.results,
        )
        with self._writing():
            self.gradebook.add(grading)
            # As the gradebook has it: staff may have waived a violation of the same content.
            self._report(self.gradebook.of(attempt.name) or grading)
        notes, took = record.notes, {"workers": record.workers, "seconds": round(record.seconds, 1)}
        self._log(attempt, "refused" if notes.refused else "graded", **took, why=notes.refused, trouble=notes.trouble)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write while nobody else does, with what staff have decided until now."""
        with writing(self.out):
            with suppress(AssignmentError):  # somebody is editing the file, and is told at the end
                self.gradebook.read_decisions()
            yield

    def _identify(self, attempt: _Attempt) -> HandedIn:
        """By whom; of a copy that says nothing, by whoever handed in the submission of this name before."""
        handed = handed_in(attempt.work.path, attempt.name, attempt.work.platform)
        before = None
        with suppress(DamagedRow):
            before = self.gradebook.of(attempt.name)
        if not handed.guessed or before is None or before.handed_in.guessed:
            return handed
        return before.handed_in if before.content == attempt.content else replace(before.handed_in, at=None, late=False)

    def _report(self, grading: Grading) -> None:
        """Write the reports; from the gradebook once more, if the batch died after the entry was made."""
        found = compute_grades_of(grading, self.suite.course)
        if why := write_reports(self.out / grading.submission, Report(grading, self.suite.problems, found)):
            self.progress.unreported[grading.submission] = why
        progress, course = self.progress, self.suite.course
        progress.below += any(not result.passed for result in grading.results if not result.bonus)
        progress.done += 1
        if progress.done * PARTS // progress.total > (progress.done - 1) * PARTS // progress.total:
            with suppress(DamagedRow):  # of another submission, which stops nobody here
                write_grades(self.out / "grades.csv", grades(self.gradebook, course), list(self.suite.problems))


def _describe(work: Upload, handed: HandedIn) -> Iterator[str]:
    """Say which files a submission came from, and what its name does not say."""
    if work.files:
        yield f"taken together as one submission: {', '.join(ascii(file.name) for file in work.files.values())}"
    if handed.guessed and work.platform != "none":
        strange = f"{work.path.name!a} is not a name that {work.platform.title()} gives"
        yield f"{strange}: it is a submission of its own, under the name of its file"


def _name_submissions(works: Iterable[Upload], known: Mapping[str, str]) -> dict[str, Upload]:
    """A name for each: the one under which its path was graded before, as is `known`, or the file's own, made safe.

    Several that are the same get a part of the hash of their path, and so does a name that looks as if it had one. A
    file of the same name from elsewhere is another attempt.
    """
    before = {path: name for name, path in known.items()}
    safe = [(work, make_safe_name(work.path.name)) for work in works]
    count = Counter(name for work, name in safe if _decode_path(work.path) not in before)
    names: dict[str, Upload] = {}
    for work, name in safe:
        if was := before.get(_decode_path(work.path)):
            name = was
        elif count[name] > 1 or HASHED.fullmatch(name):
            name += f"-{hashlib.sha256(os.fsencode(work.path)).hexdigest()[:12]}"
        names[name] = work
    return names


def _decode_path(path: Path) -> str:
    """A name in it may be no text."""
    return os.fsencode(path).decode(errors="backslashreplace")

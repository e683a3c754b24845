"""The gradebook: every grading and its results in one SQLite file that survives being killed at any moment."""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cs336_kit.engine.result import Check, Explanation, Outcome, Result

LAST = "id IN (SELECT max(id) FROM grading GROUP BY submission)"  # of every submission
VERSION = 5
SCHEMA = """
CREATE TABLE grading (
    id INTEGER PRIMARY KEY,
    submission TEXT NOT NULL,
    path TEXT NOT NULL,
    content TEXT NOT NULL,
    suite TEXT NOT NULL,
    seed INTEGER NOT NULL,
    layer TEXT NOT NULL,
    started TEXT NOT NULL,
    seconds REAL NOT NULL,
    notes TEXT NOT NULL,
    UNIQUE (submission, content, suite)
);
CREATE TABLE result (
    grading INTEGER NOT NULL REFERENCES grading ON DELETE CASCADE ON UPDATE CASCADE,
    number INTEGER NOT NULL,
    test TEXT NOT NULL,
    problem TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    bonus INTEGER NOT NULL,
    maximum REAL NOT NULL,
    outcome TEXT NOT NULL,
    looked_at TEXT NOT NULL,
    headline TEXT NOT NULL,
    details TEXT NOT NULL,
    staff TEXT NOT NULL,
    calls INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (grading, number)
) WITHOUT ROWID;
CREATE TABLE overruled (
    submission TEXT NOT NULL,
    content TEXT NOT NULL,
    problem TEXT NOT NULL,
    because TEXT NOT NULL,
    PRIMARY KEY (submission, content, problem)
) WITHOUT ROWID;
CREATE TABLE course (
    options TEXT NOT NULL
);
"""


class GradebookError(Exception):
    """The gradebook cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Notes:
    """What a report says besides the results.

    Args:
        refused: why the submission was not run, if it was not.
        stdout, stderr: what it wrote during the public tests.
        missing: packages that it imports and the grader lacks.
        taken_in: what was left out of what was handed in, or chosen.
        forbidden: for each problem that pays for it, what ran of what students must write themselves.
        explanations: what the examinations found.
    """

    refused: str = ""
    stdout: str = ""
    stderr: str = ""
    missing: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()
    forbidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    explanations: tuple[Explanation, ...] = ()

    def as_json(self) -> str:
        """One line, which `notes_from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)


def notes_from_json(text: str) -> Notes:
    """The notes that `Notes.as_json` wrote."""
    fields = json.loads(text)
    return Notes(
        **fields
        | {name: tuple(fields.get(name, ())) for name in ("missing", "taken_in")}
        | {"forbidden": {problem: tuple(calls) for problem, calls in fields["forbidden"].items()}}
        | {"explanations": tuple(Explanation(e["problem"], e["id"], tuple(e["lines"])) for e in fields["explanations"])}
    )


@dataclass(frozen=True)
class Grading:
    """One submission, graded.

    Args:
        submission: its name.
        path: where it lay.
        content: sha256 of what was handed in.
        suite: sha256 of what it was graded with.
        seed: of the release of the hidden suite.
        layer: the sandbox that was achieved.
        started: when, with the offset from UTC.
        seconds: how long it took.
        notes: what else the report says.
        results: one for every test.
        overruled: the problems in which staff counted what breaks the rules, and why.
    """

    submission: str
    path: str
    content: str
    suite: str
    seed: int
    layer: str
    started: datetime
    seconds: float
    notes: Notes
    results: Sequence[Result] = field(repr=False)
    overruled: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return math.fsum(result.points for result in self.results)

    @property
    def maximum(self) -> float:
        return math.fsum(result.maximum for result in self.results if not result.bonus)


class Gradebook:
    """`gradebook.sqlite`; every method is one transaction."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            GradebookError: another version of this program wrote it, or it is no gradebook.
        """
        self._path = path
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
        except sqlite3.Error as error:
            raise GradebookError(f"{path}: {error}") from None
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                # One transaction: a file that has a version has all of its tables.
                self._connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
            elif version != VERSION:
                todo = "use the newer program" if version > VERSION else "grade into a new folder"
                raise GradebookError(f"{path} has version {version}, this program knows version {VERSION}; {todo}")
        except (sqlite3.DatabaseError, GradebookError) as error:
            self._connection.close()
            raise error if isinstance(error, GradebookError) else GradebookError(f"{path}: {error}") from None

    @classmethod
    def of_results(cls, results: Path) -> "Gradebook":
        """Open the gradebook in a folder of results, and make none.

        Raises:
            GradebookError: there is none, or it cannot be used.
        """
        path = results / "gradebook.sqlite"
        if not path.exists():
            raise GradebookError(f"no gradebook in {results}; name the folder that `cs336 staff grade` wrote")
        return cls(path)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Gradebook":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, grading: Grading) -> None:
        """Record a grading with all its results, in the place of an earlier one of the same content and suite."""
        key = (grading.submission, grading.content, grading.suite)
        with self._transaction() as execute:
            execute("DELETE FROM grading WHERE submission = ? AND content = ? AND suite = ?", key)
            values = (
                *(None, grading.submission, grading.path, grading.content, grading.suite, grading.seed),
                *(grading.layer, grading.started.isoformat(), grading.seconds, grading.notes.as_json()),
            )
            inserted = execute("INSERT INTO grading VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values).lastrowid
            for number, result in enumerate(grading.results, start=1):
                details = "\n".join((*result.details, *result.on_paper, *result.inputs))
                values = (
                    *(inserted, number, result.test, result.problem, result.hidden, result.bonus, result.maximum),
                    *(result.outcome, result.check or "", result.headline, details, result.staff),
                    *(result.calls, result.seconds),
                )
                execute("INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def find(self, submission: str, content: str, suite: str) -> Grading | None:
        """The grading of this content by this suite, if there is one."""
        found = self._select("submission = ? AND content = ? AND suite = ?", (submission, content, suite))
        return next(found, None)

    def make_latest(self, grading: Grading) -> None:
        """Let a grading that is there be the last one: a student may hand in again what was handed in before."""
        key = (grading.submission, grading.content, grading.suite, grading.submission)
        with self._transaction() as execute:
            execute(
                "UPDATE grading SET id = 1 + (SELECT max(id) FROM grading) WHERE submission = ? AND content = ? "
                "AND suite = ? AND id < (SELECT max(id) FROM grading WHERE submission = ?)",
                key,
            )

    def latest(self, texts: bool = True) -> Iterator[Grading]:
        """The last grading of every submission, by name.

        Without `texts` headlines, details and outputs are empty: of a whole class they take much memory.
        """
        return self._select(LAST, (), texts)

    def paths(self) -> dict[str, str]:
        """Where each submission lay when it was last graded, by name."""
        return dict(self._connection.execute(f"SELECT submission, path FROM grading WHERE {LAST}"))  # noqa: S608

    def of(self, submission: str) -> Grading | None:
        """The last grading of one submission, if there is one."""
        found = self._select("id = (SELECT max(id) FROM grading WHERE submission = ?)", (submission,))
        return next(found, None)

    def overrule(self, grading: Grading, problem: str, because: str | None) -> None:
        """Count right answers in `problem` though they break the rules, in every grading of the same content.

        None as reason takes it back.
        """
        key = (grading.submission, grading.content, problem)
        with self._transaction() as execute:
            execute("DELETE FROM overruled WHERE submission = ? AND content = ? AND problem = ?", key)
            if because is not None:
                execute("INSERT INTO overruled VALUES (?, ?, ?, ?)", (*key, because))

    @property
    def course(self) -> dict[str, Any]:
        """What the grades are made with besides the gradings, as it was last set.

        Raises:
            GradebookError: it was never set.
        """
        found = self._connection.execute("SELECT options FROM course").fetchone()
        if found is None:
            raise GradebookError(
                "no grades were written from this gradebook yet; run cs336 staff grade to its end first"
            )
        return json.loads(found[0])

    @course.setter
    def course(self, options: dict[str, Any]) -> None:
        with self._transaction() as execute:
            execute("DELETE FROM course")
            execute("INSERT INTO course VALUES (?)", (json.dumps(options),))

    def _select(self, condition: str, parameters: tuple[Any, ...], texts: bool = True) -> Iterator[Grading]:
        notes = "notes" if texts else "json_set(notes, '$.stdout', '', '$.stderr', '')"
        columns = f"id, submission, path, content, suite, seed, layer, started, seconds, {notes}"
        query = f"SELECT {columns} FROM grading WHERE {condition} ORDER BY submission"  # noqa: S608 (written above)
        for id_, *columns, started, seconds, notes in self._connection.execute(query, parameters).fetchall():
            submission, path, content, suite, seed, layer = columns
            query = "SELECT problem, because FROM overruled WHERE submission = ? AND content = ?"
            overruled = dict(self._connection.execute(query, (submission, content)).fetchall())
            written = "headline, details, staff" if texts else "'', '', ''"
            columns = f"test, problem, hidden, bonus, maximum, outcome, looked_at, {written}, calls, seconds"
            query = f"SELECT {columns} FROM result WHERE grading = ? ORDER BY number"  # noqa: S608
            results = [_counted(_result(*row), overruled) for row in self._connection.execute(query, (id_,))]
            at, notes = datetime.fromisoformat(started), notes_from_json(notes)
            yield Grading(submission, path, content, suite, seed, layer, at, seconds, notes, results, overruled)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor.execute
                cursor.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):  # the disk is full, for example
                    raise GradebookError(f"{self._path}: {error}; what is in it is whole, try again") from None
                raise


def _result(
    test: str,
    problem: str,
    hidden: int,
    bonus: int,
    maximum: float,
    outcome: str,
    check: str,
    headline: str,
    details: str,
    staff: str,
    calls: int,
    seconds: float,
) -> Result:
    return Result(
        *(test, problem, bool(hidden), bool(bonus), maximum, Outcome(outcome), Check(check) if check else None),
        headline=headline,
        details=tuple(details.splitlines()),
        staff=staff,
        calls=calls,
        seconds=seconds,
    )


def _counted(result: Result, overruled: Mapping[str, str]) -> Result:
    """The result as it counts: the table keeps what the grader found."""
    if result.check is Check.RULES and result.problem in overruled:
        counted = f"counted by staff: {overruled[result.problem]}"
        return replace(result, outcome=Outcome.PASSED, headline=counted, details=())
    return result

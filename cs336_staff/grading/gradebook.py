"""The gradebook: every grading and its results in one SQLite file that survives being killed at any moment."""

import json
import math
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_staff.grading.identity import HandedIn, Student

LAST = "id IN (SELECT id FROM latest)"
VERSION = 7
NEW = "not run: this test is newer than the grading; grade the submission again"
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
    handed_in TEXT NOT NULL,
    UNIQUE (submission, content, suite, handed_in)
);
CREATE TABLE result (
    grading INTEGER NOT NULL REFERENCES grading ON DELETE CASCADE ON UPDATE CASCADE,
    number INTEGER NOT NULL,
    test TEXT NOT NULL,
    function TEXT GENERATED ALWAYS AS (substr(test, 1, instr(test || '[', '[') - 1)) VIRTUAL,
    problem TEXT NOT NULL,
    hidden INTEGER NOT NULL,
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
CREATE TABLE worth (
    function TEXT PRIMARY KEY,
    problem TEXT NOT NULL,
    bonus INTEGER NOT NULL,
    points REAL NOT NULL
) WITHOUT ROWID;
CREATE VIEW latest AS SELECT * FROM grading WHERE id IN (SELECT max(id) FROM grading GROUP BY submission);
"""
# What version 7 has and version 6 had not, or otherwise.
ADJUSTED = """
CREATE TABLE IF NOT EXISTS adjusted (
    submission TEXT NOT NULL,
    content TEXT NOT NULL,
    problem TEXT NOT NULL,
    points REAL NOT NULL,
    because TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (submission, content, problem)
) WITHOUT ROWID;
DROP VIEW IF EXISTS points;
CREATE VIEW points AS
    WITH passed AS (
        SELECT grading, function, avg(outcome = 'passed' OR (looked_at = 'rules' AND because IS NOT NULL)) AS share
        FROM result
        JOIN grading ON grading.id = grading
        LEFT JOIN overruled USING (submission, content, problem)
        GROUP BY grading, function
    ), earned AS (
        SELECT grading.id AS grading, submission, content, worth.problem, bonus,
            sum(points * coalesce(share, 0)) AS points, sum(points) AS maximum
        FROM grading JOIN worth LEFT JOIN passed ON passed.grading = grading.id AND passed.function = worth.function
        GROUP BY grading.id, worth.problem
    )
    SELECT grading, submission, problem, bonus,
        max(0, min(maximum, earned.points + coalesce(adjusted.points, 0))) AS points, maximum
    FROM earned LEFT JOIN adjusted USING (submission, content, problem);
"""


# A row for each query; None is NaN or infinite.
Matrix = tuple[tuple[float | None, ...], ...]


class GradebookError(Exception):
    """The gradebook cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Notes:
    """Everything that a report says besides the results.

    Args:
        refused: why the submission was not run, if it was not.
        stdout, stderr: what it wrote during the public tests.
        missing: packages that it imports and the grader lacks.
        taken_in: what was left out of what was handed in, or chosen.
        forbidden: for each problem that pays for it, what ran of what students must write themselves.
        explanations: what the examinations found.
        weights: of its attention on one public case, if it gave any there.
        peak_memory: the most bytes that a process of its held at once, torch included; 0 if none is known.

    Weights and memory are missing from gradings that were made before they were recorded.
    """

    refused: str = ""
    stdout: str = ""
    stderr: str = ""
    missing: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()
    forbidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    explanations: tuple[Explanation, ...] = ()
    weights: Matrix = ()
    peak_memory: int = 0

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
        | {"weights": tuple(tuple(row) for row in fields.get("weights", ()))}
    )


@dataclass(frozen=True)
class Adjustment:
    """A decision of staff about the points of a problem, after a regrade request.

    Args:
        points: added to what the tests earn; below 0, taken away.
        because: the reason, for the student and the gradebook.
        at: when, with the offset from UTC.
    """

    points: float
    because: str
    at: datetime


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
        handed_in: by whom, and when.
        results: one for every test, scored with the present weights.
        overruled: the problems in which staff counted what breaks the rules, and why.
        adjusted: the problems whose points staff adjusted.
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
    handed_in: HandedIn
    results: Sequence[Result] = field(repr=False)
    overruled: Mapping[str, str] = field(default_factory=dict)
    adjusted: Mapping[str, Adjustment] = field(default_factory=dict)

    def earned(self, problem: str) -> float:
        """The points of a problem by its tests alone."""
        return math.fsum(result.points for result in self.results if result.problem == problem)

    def maximum_of(self, problem: str) -> float:
        return math.fsum(result.maximum for result in self.results if result.problem == problem)

    def points_of(self, problem: str) -> float:
        """The points of a problem, adjusted: when tests or weights have changed, still from 0 to the maximum."""
        earned = self.earned(problem)
        if problem not in self.adjusted:
            return earned
        return max(0.0, min(self.maximum_of(problem), earned + self.adjusted[problem].points))

    @property
    def points(self) -> float:
        adjusted = (self.points_of(problem) - self.earned(problem) for problem in self.adjusted)
        return math.fsum((*(result.points for result in self.results), *adjusted))

    @property
    def maximum(self) -> float:
        return math.fsum(result.maximum for result in self.results if not result.bonus)


class Gradebook:
    """`gradebook.sqlite`; every method is one transaction."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            GradebookError: another version of this program wrote it, or it is not a gradebook.
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
            if version in (0, 6):
                # One transaction: a file that has a version has all of its tables.
                schema = ADJUSTED if version else SCHEMA + ADJUSTED
                self._connection.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {VERSION}; COMMIT")
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
            GradebookError: it is missing, or it cannot be used.
        """
        path = results / "gradebook.sqlite"
        if not path.exists():
            raise GradebookError(f"no gradebook in {results}; name the folder that `cs336 staff grade` wrote")
        return cls(path)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Gradebook":
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close()
        if isinstance(error, sqlite3.DatabaseError):
            busy = isinstance(error, sqlite3.OperationalError)  # or its disk is full
            todo = "try again" if busy else "take it from a backup, or grade into a new folder"
            raise GradebookError(f"{self._path}: {error}; {todo}") from None

    def score_with(self, problems: Mapping[str, Problem], functions: Collection[str] | None = None) -> bool:
        """Score all results, recorded and to come, with the weights of `problems`; whether that changes any.

        Results of other tests count no more.

        Args:
            problems: by id, with public and hidden tests.
            functions: the test functions that are graded, if not all.
        """
        worth = sorted(
            (test, problem.id, problem.bonus, problem.worth(test))
            for problem in problems.values()
            for test in problem.tests
            if functions is None or test in functions
        )
        before = self._connection.execute("SELECT * FROM worth ORDER BY function").fetchall()
        if before != worth:
            with self._transaction() as execute:
                execute("DELETE FROM worth")
                for row in worth:
                    execute("INSERT INTO worth VALUES (?, ?, ?, ?)", row)
        return bool(before) and before != worth

    def add(self, grading: Grading) -> None:
        """Record a grading with all its results, in the place of an earlier one of this attempt by this suite."""
        handed_in = _as_json(grading.handed_in)
        key = (grading.submission, grading.content, grading.suite, handed_in)
        with self._transaction() as execute:
            execute("DELETE FROM grading WHERE submission = ? AND content = ? AND suite = ? AND handed_in = ?", key)
            values = (
                *(None, grading.submission, grading.path, grading.content, grading.suite, grading.seed),
                *(grading.layer, grading.started.isoformat(), grading.seconds, grading.notes.as_json(), handed_in),
            )
            inserted = execute("INSERT INTO grading VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values).lastrowid
            for number, result in enumerate(grading.results, start=1):
                details = "\n".join((*result.details, *result.on_paper, *result.inputs))
                values = (
                    *(inserted, number, result.test, result.problem, result.hidden),
                    *(result.outcome, result.check or "", result.headline, details, result.staff),
                    *(result.calls, result.seconds),
                )
                execute("INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def find(self, submission: str, content: str, suite: str) -> Grading | None:
        """The last grading of this content by this suite, if there is one."""
        condition = "id = (SELECT max(id) FROM grading WHERE submission = ? AND content = ? AND suite = ?)"
        return next(self._select(condition, (submission, content, suite)), None)

    def hand_in_again(self, grading: Grading, path: str, handed_in: HandedIn) -> None:
        """Let a grading that is there be the last one, of another attempt if `handed_in` differs."""
        key = (grading.submission, grading.content, grading.suite)
        condition = "submission = ? AND content = ? AND suite = ? AND handed_in = ?"
        before, now = _as_json(grading.handed_in), _as_json(handed_in)
        with self._transaction() as execute:
            (source,) = execute(f"SELECT id FROM grading WHERE {condition}", (*key, before)).fetchone()  # noqa: S608
            if before == now:
                execute("UPDATE grading SET path = ? WHERE id = ?", (path, source))
                last = "SELECT max(id) FROM grading WHERE submission = ?"
                moved = f"UPDATE grading SET id = 1 + (SELECT max(id) FROM grading) WHERE id = ? AND id < ({last})"  # noqa: S608
                execute(moved, (source, grading.submission))
                return
            execute(f"DELETE FROM grading WHERE {condition}", (*key, now))  # noqa: S608
            copied = "submission, ?, content, suite, seed, layer, started, seconds, notes, ?"
            copy = f"INSERT INTO grading SELECT NULL, {copied} FROM grading WHERE id = ?"  # noqa: S608
            inserted = execute(copy, (path, now, source)).lastrowid
            columns = "number, test, problem, hidden, outcome, looked_at, headline, details, staff, calls, seconds"
            execute(f"INSERT INTO result SELECT ?, {columns} FROM result WHERE grading = ?", (inserted, source))  # noqa: S608

    def attempts(self) -> Iterator[Grading]:
        """The last grading of every attempt that was ever graded, in the order of grading; without texts."""
        condition = "id IN (SELECT max(id) FROM grading GROUP BY submission, content, handed_in)"
        return self._select(condition, (), texts=False, order="id")

    def with_texts(self, grading: Grading) -> Grading:
        """The same grading, read with its texts."""
        condition = "submission = ? AND content = ? AND suite = ? AND handed_in = ?"
        key = (grading.submission, grading.content, grading.suite, _as_json(grading.handed_in))
        return next(self._select(condition, key))

    def latest(self, texts: bool = True) -> Iterator[Grading]:
        """The last grading of every submission, by name.

        Without `texts` headlines, details and outputs are empty: of a whole class they take much memory.
        """
        return self._select(LAST, (), texts)

    def paths(self) -> dict[str, str]:
        """The path of each submission when it was last graded, by name."""
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

    def adjust(self, grading: Grading, problem: str, adjustment: Adjustment | None) -> None:
        """Add points to what the tests of `problem` earn, in every grading of the same content.

        It takes the place of an earlier adjustment; None takes that one back.
        """
        key = (grading.submission, grading.content, problem)
        with self._transaction() as execute:
            execute("DELETE FROM adjusted WHERE submission = ? AND content = ? AND problem = ?", key)
            if adjustment is not None:
                values = (*key, adjustment.points, adjustment.because, adjustment.at.isoformat())
                execute("INSERT INTO adjusted VALUES (?, ?, ?, ?, ?, ?)", values)

    def _select(
        self, condition: str, parameters: tuple[Any, ...], texts: bool = True, order: str = "submission"
    ) -> Iterator[Grading]:
        columns = "id, submission, path, content, suite, seed, layer, started, seconds, handed_in, "
        columns += "notes" if texts else "json_set(notes, '$.stdout', '', '$.stderr', '')"
        query = f"SELECT {columns} FROM grading WHERE {condition} ORDER BY {order}"  # noqa: S608 (written above)
        for id_, *columns, started, seconds, handed_in, notes in self._connection.execute(query, parameters).fetchall():
            submission, path, content, suite, seed, layer = columns
            query = "SELECT problem, because FROM overruled WHERE submission = ? AND content = ?"
            overruled = dict(self._connection.execute(query, (submission, content)).fetchall())
            query = "SELECT problem, points, because, at FROM adjusted WHERE submission = ? AND content = ?"
            rows = self._connection.execute(query, (submission, content)).fetchall()
            adjusted = {name: Adjustment(points, why, datetime.fromisoformat(when)) for name, points, why, when in rows}
            results = self._results(id_, overruled, texts)
            at, said = datetime.fromisoformat(started), notes_from_json(notes)
            who = _handed_in_from_json(handed_in)
            decided = (overruled, adjusted)
            yield Grading(submission, path, content, suite, seed, layer, at, seconds, said, who, results, *decided)

    def _results(self, grading: int, overruled: Mapping[str, str], texts: bool) -> list[Result]:
        """The results of tests that count, each with what it is worth; a test without a result was not run."""
        written = "headline, details, staff" if texts else "'', '', ''"
        columns = f"test, result.problem, hidden, outcome, looked_at, {written}, calls, seconds"
        columns += ", worth.problem, bonus, points / count(*) OVER (PARTITION BY function)"
        query = f"SELECT {columns} FROM result JOIN worth USING (function) WHERE grading = ? ORDER BY number"  # noqa: S608
        found = [_result(overruled, *row) for row in self._connection.execute(query, (grading,))]
        ran = {result.function for result in found}
        for function, problem, bonus, points in self._connection.execute("SELECT * FROM worth"):
            if function not in ran:
                found.append(Result(function, problem, True, bool(bonus), points, Outcome.NOT_RUN, headline=NEW))
        return found

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
                    raise GradebookError(f"{self._path}: {error}; its contents are intact; try again") from None
                raise


def _result(
    overruled: Mapping[str, str],
    test: str,
    recorded: str,
    hidden: int,
    outcome: str,
    check: str,
    headline: str,
    details: str,
    staff: str,
    calls: int,
    seconds: float,
    problem: str,
    bonus: int,
    maximum: float,
) -> Result:
    """A result as it counts: the table keeps what the grader found, under the problem that it was then part of."""
    if check == Check.RULES and recorded in overruled:
        outcome, headline, details = Outcome.PASSED, f"counted by staff: {overruled[recorded]}", ""
    return Result(
        *(test, problem, bool(hidden), bool(bonus), maximum, Outcome(outcome), Check(check) if check else None),
        headline=headline,
        details=tuple(details.splitlines()),
        staff=staff,
        calls=calls,
        seconds=seconds,
    )


def _as_json(handed_in: HandedIn) -> str:
    return json.dumps(asdict(handed_in), default=datetime.isoformat, ensure_ascii=False)


def _handed_in_from_json(text: str) -> HandedIn:
    fields = json.loads(text)
    students = tuple(Student(**student) for student in fields["students"])
    at = fields["at"] and datetime.fromisoformat(fields["at"])
    return HandedIn(**fields | {"students": students, "at": at})

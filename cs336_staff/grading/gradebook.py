"""The gradebook: every grading and its results in one SQLite file that survives being killed at any moment."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.errors import CourseworkError
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_staff.grading.decisions import FILE, Comment, add_decision, find_unused, read_decisions
from cs336_staff.grading.grading import Grading, notes_from_json
from cs336_staff.grading.identity import HandedIn, Student

NAME, VERSION = "gradebook.sqlite", 9
NEW = "not run: this test is newer than the grading; grade the submission again"
SCHEMA = """
CREATE TABLE IF NOT EXISTS grading (
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
CREATE TABLE IF NOT EXISTS result (
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
CREATE TABLE IF NOT EXISTS worth (
    function TEXT PRIMARY KEY,
    problem TEXT NOT NULL,
    bonus INTEGER NOT NULL,
    points REAL NOT NULL
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS latest AS SELECT * FROM grading WHERE id IN (SELECT max(id) FROM grading GROUP BY submission);
"""
GRADING = ("submission", "path", "content", "suite", "seed", "layer", "started", "seconds", "notes", "handed_in")
RESULT = ("grading", "number", "test", "problem", "hidden", "outcome", "looked_at", "headline", "details", "staff")
RESULT += ("calls", "seconds")
# One row of `grading`: an attempt, graded by one suite.
KEY = "submission = :submission AND content = :content AND suite = :suite AND handed_in = :handed_in"


class GradebookError(CourseworkError):
    """The gradebook cannot be used; the message says why and what to do."""


class Gradebook:
    """`gradebook.sqlite`, where every method is one transaction, with the decisions of staff beside it."""

    def __init__(self, path: Path, muted: Collection[str] = ()) -> None:
        """Open the file, or make it.

        Args:
            path: the file.
            muted: the ids of findings that no grading shows when it is read; they stay recorded.

        Raises:
            GradebookError: another version of this program wrote it, or it is not a gradebook, or it has been lost.
            AssignmentError: something in the decisions of staff is not as it should be.
        """
        self._path, self._muted = path, muted
        self.decisions = read_decisions(path.parent)
        if not (path.exists() and path.stat().st_size) and any(path.parent.glob("*/results.json")):
            raise GradebookError(f"{path.parent} has results and no {path.name}: {self._todo}")
        try:
            with ExitStack() as stack:
                self._connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                if version == 0:
                    # One transaction: a file that has a version has all of its tables.
                    self._connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
                elif version != VERSION:
                    todo = "use the newer program" if version > VERSION else self._todo
                    raise GradebookError(f"{path} has version {version}, this program knows version {VERSION}; {todo}")
                self.close = stack.pop_all().close
        except sqlite3.Error as error:
            raise self._explain(error) from None

    @property
    def _todo(self) -> str:
        out = self._path.parent
        return f"take it from a backup; without one, move everything but {FILE} out of {out} and grade everybody again"

    def _explain(self, error: sqlite3.Error) -> GradebookError:
        busy = isinstance(error, sqlite3.OperationalError)  # or its disk is full
        return GradebookError(f"{self._path}: {error}; {'try again' if busy else self._todo}")

    def __enter__(self) -> "Gradebook":
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close()
        if isinstance(error, sqlite3.DatabaseError):
            raise self._explain(error) from None

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
        before = [tuple(row) for row in self._connection.execute("SELECT * FROM worth ORDER BY function")]
        if before != worth:
            with self._transaction() as connection:
                connection.execute("DELETE FROM worth")
                connection.executemany("INSERT INTO worth VALUES (?, ?, ?, ?)", worth)
        return bool(before) and before != worth

    def add(self, grading: Grading) -> None:
        """Record a grading with all its results, in the place of an earlier one of this attempt by this suite."""
        row = _row_of_grading(grading)
        with self._transaction() as connection:
            connection.execute(f"DELETE FROM grading WHERE {KEY}", row)  # noqa: S608
            inserted = connection.execute(_insert("grading", GRADING), row).lastrowid
            results = (_row_of_result(inserted, *each) for each in enumerate(grading.results, start=1))
            connection.executemany(_insert("result", RESULT), results)

    def hand_in_again(self, grading: Grading, path: str, handed_in: HandedIn) -> None:
        """Let a grading that is there be the last one, of another attempt if `handed_in` differs."""
        before = _row_of_grading(grading)
        now = before | {"path": path, "handed_in": _handed_in_as_json(handed_in)}
        with self._transaction() as connection:
            (now["source"],) = connection.execute(f"SELECT id FROM grading WHERE {KEY}", before).fetchone()  # noqa: S608
            if before["handed_in"] == now["handed_in"]:
                connection.execute("UPDATE grading SET path = :path WHERE id = :source", now)
                last = "SELECT max(id) FROM grading"
                moved = f"UPDATE grading SET id = 1 + ({last}) WHERE id = :source"  # noqa: S608
                connection.execute(f"{moved} AND id < ({last} WHERE submission = :submission)", now)
                return
            connection.execute(f"DELETE FROM grading WHERE {KEY}", now)  # noqa: S608
            copied = _copy("grading WHERE id = :source", GRADING, path=":path", handed_in=":handed_in")
            now["copy"] = connection.execute(copied, now).lastrowid
            connection.execute(_copy("result WHERE grading = :source", RESULT, grading=":copy"), now)

    def find(self, submission: str, content: str, suite: str) -> Grading | None:
        """The last grading of this content by this suite, if there is one."""
        condition = "id = (SELECT max(id) FROM grading WHERE submission = ? AND content = ? AND suite = ?)"
        return next(self._select(condition, (submission, content, suite)), None)

    def of(self, submission: str) -> Grading | None:
        """The last grading of one submission, if there is one."""
        return next(self._select("id = (SELECT max(id) FROM grading WHERE submission = ?)", (submission,)), None)

    def with_texts(self, grading: Grading) -> Grading:
        """The same grading, read with its texts."""
        return next(self._select(KEY, _row_of_grading(grading)))

    def latest(self, texts: bool = True) -> Iterator[Grading]:
        """The last grading of every submission, by name.

        Without `texts` headlines, details and outputs are empty: of a whole class they take much memory.
        """
        return self._select("id IN (SELECT id FROM latest)", texts=texts)

    def attempts(self) -> Iterator[Grading]:
        """The last grading of every attempt that was ever graded, in the order of grading; without texts."""
        condition = "id IN (SELECT max(id) FROM grading GROUP BY submission, content, handed_in)"
        return self._select(condition, texts=False, order="id")

    def paths(self) -> dict[str, str]:
        """The path of each submission when it was last graded, by name."""
        return dict(self._connection.execute("SELECT submission, path FROM latest").fetchall())

    def decide(self, table: str, decision: Comment, whose: str) -> None:
        """Write down what staff decided, and let every grading that is read from now on have it."""
        add_decision(self._path.parent, table, decision, whose)
        self.decisions = read_decisions(self._path.parent)

    def unused_decisions(self) -> list[str]:
        """Say of each decision that is about nothing that was graded where it stands."""
        known: dict[str, set[str]] = {}
        query = "SELECT DISTINCT submission, content, handed_in FROM grading"
        for submission, content, handed_in in self._connection.execute(query):
            for name in (submission, *_handed_in_from_json(handed_in).keys):
                known.setdefault(name, set()).add(content)
        return list(find_unused(self._path.parent, self.decisions, known))

    def _select(
        self, condition: str, parameters: Any = (), texts: bool = True, order: str = "submission"
    ) -> Iterator[Grading]:
        notes = "notes" if texts else "json_set(notes, '$.stdout', '', '$.stderr', '') AS notes"
        columns = ", ".join(name if name != "notes" else notes for name in GRADING)
        query = f"SELECT id, {columns} FROM grading WHERE {condition} ORDER BY {order}"  # noqa: S608
        for row in self._connection.execute(query, parameters).fetchall():
            yield self._read(row, texts)

    def _read(self, row: sqlite3.Row, texts: bool) -> Grading:
        """The grading in a row, with its results and what staff decided about it."""
        notes = notes_from_json(row["notes"])
        told = tuple(each for each in notes.explanations if each.id not in self._muted)
        handed_in = _handed_in_from_json(row["handed_in"])
        own = self.decisions.about((row["submission"], *handed_in.keys), row["content"])
        fields: dict[str, Any] = {name: row[name] for name in GRADING} | {
            "started": datetime.fromisoformat(row["started"]),
            "notes": replace(notes, explanations=told),
            "handed_in": handed_in,
        }
        return Grading(
            **fields,
            results=self._results(row["id"], texts),
            overruled={each.problem: each.text for each in own.overrule},
            adjusted={each.problem: (each.points, each.text) for each in own.adjust},
            comments=tuple(each.text for each in own.comment),
        )

    def _results(self, grading: int, texts: bool) -> list[Result]:
        """The results of tests that count, each with what it is worth; a test without a result was not run."""
        columns = "test, worth.problem, hidden, bonus, outcome, looked_at, calls, seconds, "
        columns += "points / count(*) OVER (PARTITION BY function) AS maximum, "
        columns += "headline, details, staff" if texts else "'' AS headline, '' AS details, '' AS staff"
        query = f"SELECT {columns} FROM result JOIN worth USING (function) WHERE grading = ? ORDER BY number"  # noqa: S608
        found = [_result_of_row(row) for row in self._connection.execute(query, (grading,))]
        ran = {result.function for result in found}
        for function, problem, bonus, points in self._connection.execute("SELECT * FROM worth"):
            if function not in ran:
                found.append(Result(function, problem, True, bool(bonus), points, Outcome.NOT_RUN, headline=NEW))
        return found

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
        except sqlite3.OperationalError as error:  # the disk is full, for example
            raise GradebookError(f"{self._path}: {error}; its contents are intact; try again") from None


def _insert(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row with these columns, each under its own name."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"  # noqa: S608


def _copy(rows: str, columns: Sequence[str], **changed: str) -> str:
    """The statement that inserts rows of a table again, with other values in some columns."""
    values = ", ".join(changed.get(name, name) for name in columns)
    return f"INSERT INTO {rows.split()[0]} ({', '.join(columns)}) SELECT {values} FROM {rows}"  # noqa: S608


def _row_of_grading(grading: Grading) -> dict[str, Any]:
    return vars(grading) | {
        "started": grading.started.isoformat(),
        "notes": grading.notes.as_json(),
        "handed_in": _handed_in_as_json(grading.handed_in),
    }


def _row_of_result(grading: int | None, number: int, result: Result) -> dict[str, Any]:
    """Of what the grader found: not of what it is worth."""
    return {name: getattr(result, name, None) for name in RESULT} | {
        "grading": grading,
        "number": number,
        "looked_at": result.check or "",
        "details": "\n".join((*result.details, *result.on_paper, *result.inputs)),
    }


def _result_of_row(row: sqlite3.Row) -> Result:
    """A result as it counts: the table keeps what the grader found, under the problem that it was then part of."""
    test, problem, hidden, bonus, outcome, looked_at, calls, seconds, maximum, headline, details, staff = row
    check = Check(looked_at) if looked_at else None
    return Result(
        *(test, problem, bool(hidden), bool(bonus), maximum, Outcome(outcome), check, headline),
        details=tuple(details.splitlines()),
        staff=staff,
        calls=calls,
        seconds=seconds,
    )


def _handed_in_as_json(handed_in: HandedIn) -> str:
    return json.dumps(asdict(handed_in), default=datetime.isoformat, ensure_ascii=False)


def _handed_in_from_json(text: str) -> HandedIn:
    fields = json.loads(text)
    students = tuple(Student(**student) for student in fields["students"])
    at = fields["at"] and datetime.fromisoformat(fields["at"])
    return HandedIn(**fields | {"students": students, "at": at})

"""The gradebook: every grading and its results in one SQLite file that survives being killed at any moment.

Beside it lies `decisions.toml`: what staff decided about grades, a text that people read and edit. Nothing else records
a decision, so it outlives the gradebook. `adjust`, `overrule` and `comment` add to its end.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from whichline.engine.assignment import Problem, share_points
from whichline.engine.errors import CourseworkError
from whichline.engine.result import Outcome, Result, function_of
from whichline.engine.toml_file import Complaint, Key, Signed, located, read_toml
from whichline_grader.grading.course import Course, find_checked_root, load_course
from whichline_grader.grading.graded import Grading, notes_from_json
from whichline_grader.grading.identity import HandedIn, handed_in_from_json
from whichline_grader.grading.writing import write_atomically, writing
from whichline_grader.hidden.release import load_graded_problems
from whichline_grader.sandbox.printable import printable

NAME, VERSION = "gradebook.sqlite", 10
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
    results TEXT NOT NULL,
    UNIQUE (submission, content, suite, handed_in)
);
CREATE TABLE IF NOT EXISTS problem (
    id TEXT PRIMARY KEY,
    bonus INTEGER NOT NULL,
    points REAL NOT NULL,
    tests TEXT NOT NULL
);
CREATE VIEW IF NOT EXISTS latest AS SELECT * FROM grading WHERE id IN (SELECT max(id) FROM grading GROUP BY submission);
"""
# A damaged row stays as it is: whoever reads it says whose it is.
WITHOUT_TEXTS = """(SELECT id, submission, path, content, suite, seed, layer, started, seconds, handed_in,
    iif(json_valid(notes), json_remove(notes, '$.stdout', '$.stderr'), notes) AS notes,
    iif(json_valid(results), (SELECT json_group_array(json_remove(
        value, '$.headline', '$.details', '$.on_paper', '$.inputs', '$.functions', '$.staff'
    )) FROM json_each(results)), results) AS results FROM grading)"""
COLUMNS = "submission, path, content, suite, seed, layer, started, seconds, handed_in, notes, results"
# One row of `grading`: an attempt, graded by one suite.
KEY = "submission = :submission AND content = :content AND suite = :suite AND handed_in = :handed_in"

FILE = "decisions.toml"
DIGITS = 12  # of a SHA-256, which name what was handed in
HEAD = """\
# What staff decided about grades; nothing else records it. Change it as you like, then run `staff rescore`.
# To take a decision back, delete it. Of two on one problem the later one holds.
# student: as in the column `student` of grades.csv, or the name of a submission
# work:    what was handed in, by the beginning of its SHA-256; without it, whatever the student hands in
# text:    for the student to read
"""


@dataclass(frozen=True, kw_only=True)
class Comment:
    """Something that staff tell a student; it changes no points.

    Args:
        student: the number, or the name of a submission.
        work: the first digits of the SHA-256 of what was handed in; without any, all that the student hands in.
        text: for the student to read.
    """

    student: str
    work: str = ""
    text: str


@dataclass(frozen=True, kw_only=True)
class Overruling(Comment):
    """Right answers in a problem count though they break the rules; the text says why."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class Adjustment(Overruling):
    """Points are added to what the tests of a problem earn, or below 0 taken away; the text says why."""

    points: Signed


TABLES = {Adjustment: "adjust", Overruling: "overrule", Comment: "comment"}


@dataclass(frozen=True)
class Decisions:
    """All that staff decided about a class.

    Args:
        adjust, overrule, comment: in the order of the file.
        counts: of a student, the work that counts, whatever its place among the attempts.
    """

    adjust: tuple[Adjustment, ...] = ()
    overrule: tuple[Overruling, ...] = ()
    comment: tuple[Comment, ...] = ()
    counts: dict[str, str] = field(default_factory=dict)

    def each(self) -> Iterator[tuple[Key, Comment]]:
        """Give each of them with its key in the file."""
        for table in TABLES.values():
            for number, each in enumerate(getattr(self, table)):
                yield (table, number), each


def as_toml(text: str) -> str:
    """A text as TOML and JSON have it."""
    return json.dumps(printable(text), ensure_ascii=False)


class GradebookError(CourseworkError):
    """The gradebook cannot be used; the message says why and what to do."""


class DamagedRow(GradebookError):
    """The record of one submission cannot be read."""


class Gradebook:
    """`gradebook.sqlite`, where every method is one transaction, with the decisions of staff beside it."""

    def __init__(self, path: Path, muted: Collection[str] = ()) -> None:
        """Open the file, or make it; findings with `muted` ids stay recorded, and no grading that is read shows them.

        Raises:
            GradebookError: another version of this program wrote it, or it is not a gradebook, or it has been lost.
            AssignmentError: something in the decisions of staff is not as it should be.
        """
        self._path, self._decided, self._muted = path, path.parent / FILE, muted
        self.read_decisions()
        if not (path.exists() and path.stat().st_size) and any(path.parent.glob("*/results.json")):
            raise GradebookError(f"{path.parent} has results and no {path.name}: {self._todo}")
        try:
            with ExitStack() as stack:
                self._connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA journal_mode = WAL")
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

    def score_with(self, problems: Mapping[str, Problem]) -> bool:
        """Score all results, recorded and to come, with the weights of these problems; tell whether that changes any.

        Results of other tests count no more.
        """
        now = [(each.id, each.bonus, each.points, json.dumps(each.tests)) for each in problems.values()]
        before = [tuple(row) for row in self._connection.execute("SELECT * FROM problem ORDER BY rowid")]
        if before != now:
            with self._transaction() as connection:
                connection.execute("DELETE FROM problem")
                connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", now)
        return bool(before) and before != now

    def add(self, grading: Grading) -> None:
        """Record a grading with all its results, in the place of an earlier one of this attempt by this suite."""
        with self._transaction() as connection:
            _put(connection, _as_row(grading))

    def drop_damaged(self, submission: str, content: str) -> None:
        """Delete what is recorded of this content if it cannot be read: it is graded again."""
        query = "SELECT id FROM grading WHERE submission = ? AND content = ?"
        with self._transaction() as connection:
            for (id,) in connection.execute(query, (submission, content)).fetchall():
                try:
                    list(self._select("id = ?", (id,)))
                except DamagedRow:
                    connection.execute("DELETE FROM grading WHERE id = ?", (id,))

    def hand_in_again(self, grading: Grading, path: str, handed_in: HandedIn) -> None:
        """Let a grading that is there be the last one, of another attempt if `handed_in` differs."""
        with self._transaction() as connection:
            row = connection.execute(f"SELECT * FROM grading WHERE {KEY}", _as_key(grading)).fetchone()  # noqa: S608
            now: dict[str, Any] = dict(row) | {"path": path, "handed_in": handed_in.as_json()}
            is_last = "SELECT 1 FROM latest WHERE id = :id AND handed_in = :handed_in"
            _put(connection, now, now["id"] if connection.execute(is_last, now).fetchone() else None)

    def find(self, submission: str, content: str, suite: str) -> Grading | None:
        """The last grading of this content by this suite, if there is one."""
        condition = "id = (SELECT max(id) FROM grading WHERE submission = ? AND content = ? AND suite = ?)"
        return next(self._select(condition, (submission, content, suite)), None)

    def of(self, submission: str) -> Grading | None:
        """The last grading of one submission, if there is one."""
        return next(self._select("id = (SELECT max(id) FROM grading WHERE submission = ?)", (submission,)), None)

    def with_texts(self, grading: Grading) -> Grading:
        """The same grading, read with its texts."""
        return next(self._select(KEY, _as_key(grading)))

    def latest(self, texts: bool = True) -> Iterator[Grading]:
        """The last grading of every submission, by name.

        Without `texts` headlines, details and outputs are empty: of a whole class they take much memory.
        """
        return self._select("id IN (SELECT id FROM latest) ORDER BY submission", texts=texts)

    def attempts(self) -> Iterator[Grading]:
        """The last grading of every attempt that was ever graded, in the order of grading; without texts."""
        condition = "id IN (SELECT max(id) FROM grading GROUP BY submission, content, handed_in) ORDER BY id"
        return self._select(condition, texts=False)

    def paths(self) -> dict[str, str]:
        """The path of each submission when it was last graded, by name."""
        return dict(self._connection.execute("SELECT submission, path FROM latest").fetchall())

    def read_decisions(self) -> None:
        """Read what staff have decided until now; AssignmentError if something in it is not as it should be."""
        self.decisions = read_toml(self._decided, Decisions) if self._decided.exists() else Decisions()

    def decide(self, decision: Comment, whose: str) -> None:
        """Write down what staff decided, and let every grading that is read from now on have it.

        It becomes the end of the file, below a comment that says `whose` it is.
        """
        if not decision.text.strip():
            raise CourseworkError("expected a text for the student, got nothing")
        lines = [f"[[{TABLES[type(decision)]}]]  # {' '.join(printable(whose).split())}"]
        for each in sorted(fields(decision), key=lambda each: each.name == "text"):
            if (value := getattr(decision, each.name)) != "":
                lines.append(f"{each.name} = {f'{value:+}' if each.type is Signed else as_toml(value)}")
        with writing(self._decided.parent):
            before = self._decided.read_text(encoding="utf-8") if self._decided.exists() else HEAD
            write_atomically(self._decided, "\n".join((before.rstrip("\n"), "", *lines, "")))
            self.read_decisions()

    def check_decisions(self, problems: Iterable[str]) -> None:
        """Raise AssignmentError if a decision is about another problem than these."""
        for key, each in self.decisions.each():
            if isinstance(each, Overruling) and each.problem not in problems:
                what = f"is {each.problem!r}, expected one of {', '.join(problems)}"
                raise located(self._decided, Complaint((*key, "problem"), what))

    def unused_decisions(self) -> Iterator[str]:
        """Say of each decision that is about nothing that was graded where it stands."""
        known: dict[str, set[str]] = {}
        query = "SELECT DISTINCT submission, path, content, handed_in FROM grading"
        for submission, path, content, handed_in in self._connection.execute(query):
            with self._naming(submission, path):
                for name in (submission, *handed_in_from_json(handed_in).keys):
                    known.setdefault(name, set()).add(content)
        about: list[tuple[Key, str, str]] = [(key, each.student, each.work) for key, each in self.decisions.each()]
        about += [(("counts", student), student, work) for student, work in self.decisions.counts.items()]
        for key, student, work in about:
            if not any(content.startswith(work) for content in known.get(student, ())):
                what = f"is about {' of '.join(filter(None, (work, student)))}"
                yield str(located(self._decided, Complaint(key, what)))

    def _select(self, condition: str, parameters: Any = (), texts: bool = True) -> Iterator[Grading]:
        problems = [
            Problem(id, "", points, (), json.loads(tests), (), bool(bonus))
            for id, bonus, points, tests in self._connection.execute("SELECT * FROM problem ORDER BY rowid")
        ]
        table = "grading" if texts else WITHOUT_TEXTS
        for row in self._connection.execute(f"SELECT {COLUMNS} FROM {table} WHERE {condition}", parameters):  # noqa: S608
            with self._naming(row["submission"], row["path"]):
                grading = self._read(dict(row), problems)
            yield grading

    @contextmanager
    def _naming(self, submission: str, path: str) -> Iterator[None]:
        """Say whose row it is that cannot be read."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise DamagedRow(
                f"{self._path}: what is recorded of {submission} cannot be read ({error}); grade {path} again, "
                "or take the gradebook from a backup"
            ) from None

    def _read(self, row: dict[str, Any], problems: Iterable[Problem]) -> Grading:
        """The grading in a row, and what staff decided about it."""
        notes, handed_in = notes_from_json(row["notes"]), handed_in_from_json(row["handed_in"])
        told = tuple(each for each in notes.explanations if each.id not in self._muted)
        names, content = (row["submission"], *handed_in.keys), row["content"]
        own = [one for _, one in self.decisions.each() if one.student in names and content.startswith(one.work)]
        row |= {
            "started": datetime.fromisoformat(row["started"]),
            "notes": replace(notes, explanations=told),
            "handed_in": handed_in,
            "results": _score(msgspec.json.decode(row["results"], type=list[dict[str, Any]]), problems),
        }
        return Grading(
            **row,
            overruled={each.problem: each.text for each in own if type(each) is Overruling},
            adjusted={each.problem: (each.points, each.text) for each in own if type(each) is Adjustment},
            comments=tuple(each.text for each in own if type(each) is Comment),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
        except sqlite3.OperationalError as error:  # the disk is full, for example
            raise GradebookError(f"{self._path}: {error}; its contents are intact; try again") from None


def _put(connection: sqlite3.Connection, row: Mapping[str, Any], id: int | None = None) -> None:
    """Write a row of `grading` in the place of the one with its key; without an `id` it is the last one."""
    connection.execute(f"DELETE FROM grading WHERE {KEY}", row)  # noqa: S608
    values = COLUMNS.replace(", ", ", :")
    connection.execute(f"INSERT INTO grading (id, {COLUMNS}) VALUES (:id, :{values})", {**row, "id": id})  # noqa: S608


def _as_row(grading: Grading) -> dict[str, Any]:
    return _as_key(grading) | {
        "started": grading.started.isoformat(),
        "notes": grading.notes.as_json(),
        "results": f"[{','.join(result.as_json() for result in grading.results)}]",
    }


def _as_key(grading: Grading) -> dict[str, Any]:
    return vars(grading) | {"handed_in": grading.handed_in.as_json()}


def _score(written: Sequence[dict[str, Any]], problems: Iterable[Problem]) -> list[Result]:
    """The results of tests that count, each with what it is worth; a test without a result was not run."""
    functions = [function_of(each["test"]) for each in written]
    worth: dict[str, dict[str, Any]] = {
        function: {"problem": problem.id, "bonus": problem.bonus, "maximum": points}
        for function, (problem, points) in share_points(problems, functions).items()
    }
    kept = [each | worth[test] for test, each in zip(functions, written, strict=True) if test in worth]
    ran = msgspec.convert(kept, list[Result])
    new = sorted(worth.keys() - functions)
    return ran + [Result(test, hidden=True, outcome=Outcome.NOT_RUN, headline=NEW, **worth[test]) for test in new]


@dataclass(frozen=True)
class Results:
    """A folder of results while its gradebook is open, with the course, and its problems by id."""

    folder: Path
    gradebook: Gradebook
    course: Course
    problems: Mapping[str, Problem]


@contextmanager
def open_results(folder: Path) -> Iterator[Results]:
    """Open a folder of results, once all that staff state is checked; whoever else writes into it waits."""
    root = find_checked_root()
    course, problems = load_course(root), load_graded_problems(root)
    if not (folder / NAME).exists() and not any(folder.glob("*/results.json")):
        raise GradebookError(f"no gradebook in {folder}; name the folder that `staff grade` wrote")
    with writing(folder), Gradebook(folder / NAME, course.muted) as gradebook:
        if not gradebook.paths():  # else all grades would be gone
            raise GradebookError(f"the gradebook in {folder} is empty; grade a submission into it first")
        gradebook.check_decisions(problems)
        yield Results(folder, gradebook, course, problems)

"""The gradebook: every attempt and its outcomes in one SQLite file that survives being killed at any moment."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from whichline.engine.assignment import Problem
from whichline.engine.errors import CourseworkError
from whichline.engine.result import Outcome, Result, name_function
from whichline.engine.toml_file import Complaint, Key, locate_error, read_toml
from whichline_grader.grading import tables
from whichline_grader.grading.course import Course, find_checked_root, load_course
from whichline_grader.grading.decisions import FILE, Adjustment, Comment, Decisions, Waiver, write_decision
from whichline_grader.grading.graded import Grading, Score, read_notes
from whichline_grader.grading.identity import HandedIn, parse_handed_in
from whichline_grader.grading.writing import writing
from whichline_grader.hidden.release import load_graded_problems

NAME = "gradebook.sqlite"
NEW = "not run: this test is newer than the grading; grade the submission again"


class GradebookError(CourseworkError):
    """The gradebook cannot be used; the message says why and what to do."""


class DamagedRow(GradebookError):
    """The record of one submission cannot be read."""


class Gradebook(AbstractContextManager["Gradebook"]):
    """`gradebook.sqlite`, where every method is one transaction, with the decisions of staff beside it."""

    def __init__(self, path: Path, muted: Collection[str] = ()) -> None:
        """Open the file, or make it; findings with `muted` ids stay recorded, and no grading that is read shows them.

        GradebookError if it is lost or damaged, or of another version; AssignmentError for errors in the decisions.
        """
        self._path, self._decided, self._muted = path, path.parent / FILE, muted
        self._lists: dict[int, dict[str, bool]] = {}
        # Until something is written:
        self._worth: dict[int, dict[str, sqlite3.Row]] = {}
        self._passed: dict[int, dict[str, Result]] = {}
        self._attempts: list[Grading] = []
        self.read_decisions()
        if not (path.exists() and path.stat().st_size) and any(path.parent.glob("*/results.json")):
            raise GradebookError(f"{path.parent} has results and no {path.name}: {self._todo}")
        try:
            with ExitStack() as stack:
                self._connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                if version in (0, tables.BEFORE):
                    with self._transaction():  # a file that has a version has all of its tables
                        tables.make_tables(self._connection, version)
                    if version:
                        self._connection.execute("VACUUM")
                elif version != tables.VERSION:
                    todo = "use the newer program" if version > tables.VERSION else self._todo
                    known = f"this program knows version {tables.VERSION}"
                    raise GradebookError(f"{path} has version {version}, {known}; {todo}")
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
                connection.execute("DELETE FROM score")
                connection.execute("INSERT INTO score SELECT * FROM counted")
        return bool(before) and before != now

    def _weigh(self, tests: int) -> dict[str, sqlite3.Row]:
        if tests not in self._worth:
            found = self._connection.execute("SELECT * FROM worth WHERE list = ?", (tests,))
            self._worth[tests] = {row["test"]: row for row in found}
        return self._worth[tests]

    def _read_list(self, id: int) -> dict[str, bool]:
        """The tests of a list, each with whether it is hidden: most gradings have the same ones."""
        if id not in self._lists:
            found = self._connection.execute("SELECT tests FROM list WHERE id = ?", (id,)).fetchone()
            self._lists[id] = dict(json.loads(found["tests"])) if found else {}
        return self._lists[id]

    def add(self, grading: Grading) -> None:
        """Record a grading with all its results, in the place of an earlier one of this attempt by this suite."""
        row = _as_key(grading) | {"started": grading.started.isoformat()}
        with self._transaction():
            results = [json.loads(each.as_json()) for each in grading.results]
            tables.put_attempt(self._connection, row, asdict(grading.notes), results)

    def drop_damaged(self, submission: str, content: str) -> None:
        """Delete what is recorded of this content if it cannot be read: it is graded again."""
        query = "SELECT id FROM attempt WHERE submission = ? AND content = ?"
        with self._transaction() as connection:
            for (id,) in connection.execute(query, (submission, content)).fetchall():
                try:
                    list(self._select("id = ?", (id,)))
                except DamagedRow:
                    connection.execute("DELETE FROM attempt WHERE id = ?", (id,))

    def hand_in_again(self, grading: Grading, path: str, handed_in: HandedIn) -> None:
        """Let a grading that is there be the last one, of another attempt if `handed_in` differs."""
        now = _as_key(replace(grading, path=path, handed_in=handed_in))
        with self._transaction() as connection:
            if grading.handed_in != handed_in:
                connection.execute(f"DELETE FROM attempt WHERE {tables.KEY}", now)  # noqa: S608
                copied = tables.COLUMNS.replace("path", ":path").replace("handed_in", ":handed_in")
                copy = f"INSERT INTO attempt ({tables.COLUMNS}) SELECT {copied} FROM attempt WHERE id = :id"  # noqa: S608
                id = connection.execute(copy, now).lastrowid
                for table, what in (("outcome", "outcome"), ("told", "said")):
                    rest = f'SELECT ?, test, "case", {what} FROM {table} WHERE attempt = ?'  # noqa: S608
                    connection.execute(f"INSERT INTO {table} {rest}", (id, grading.id))
                connection.execute("INSERT INTO score SELECT * FROM counted WHERE attempt = ?", (id,))
            else:
                is_last = connection.execute("SELECT 1 FROM latest WHERE id = :id", now).fetchone()
                id = ":id" if is_last else "(SELECT max(id) + 1 FROM attempt)"
                connection.execute(f"UPDATE attempt SET path = :path, id = {id} WHERE id = :id", now)  # noqa: S608

    def find(self, submission: str, content: str, suite: str) -> Grading | None:
        """The last grading of this content by this suite, if there is one."""
        condition = "id = (SELECT max(id) FROM attempt WHERE submission = ? AND content = ? AND suite = ?)"
        return next(self._select(condition, (submission, content, suite)), None)

    def of(self, submission: str) -> Grading | None:
        return next(self._select("id = (SELECT max(id) FROM attempt WHERE submission = ?)", (submission,)), None)

    def with_texts(self, grading: Grading) -> Grading:
        """The same grading, read with its results and texts."""
        return next(self._select("id = ?", (grading.id,)))

    def latest(self, texts: bool = True) -> Iterator[Grading]:
        """The last grading of every submission, by name; without `texts` as in `attempts`."""
        return self._select("id IN (SELECT id FROM latest) ORDER BY submission", texts=texts)

    def attempts(self) -> Iterator[Grading]:
        """The last grading of every attempt that was ever graded, in the order of grading.

        They have a score for each problem, but no results and no texts.
        """
        if not self._attempts:
            condition = "id IN (SELECT max(id) FROM attempt GROUP BY submission, content, handed_in) ORDER BY id"
            self._attempts = list(self._read_all(condition, texts=False))
        return map(self._add_decisions, self._attempts)

    def failures(self, test: str) -> dict[int, list[tuple[str, float]]]:
        """What a test, or one case of it, said in each grading in which it did not pass, and the points it costs."""
        function, case = tables.split_name(test)
        found: dict[int, list[tuple[str, float]]] = {}
        for id, tests in self._connection.execute("SELECT id, tests FROM attempt"):
            if not (worth := self._weigh(tests)[function])["ran"]:
                found[id] = [(NEW, worth["points"])]
        query = """SELECT id, tests, coalesce(json_extract(said, '$.headline'), '')
            FROM attempt JOIN told ON attempt = id AND test = ? AND "case" = coalesce(?, "case")"""
        for id, tests, headline in self._connection.execute(query, (function, case or None)):
            found.setdefault(id, []).append((headline, self._weigh(tests)[function]["points"]))
        return found

    def outcomes(self, grading: Grading) -> tuple[Collection[str], dict[str, str]]:
        """All tests that it was graded with, and what became of those that did not pass."""
        (tests,) = self._connection.execute("SELECT tests FROM attempt WHERE id = ?", (grading.id,)).fetchone()
        rows = self._connection.execute('SELECT test, "case", outcome FROM outcome WHERE attempt = ?', (grading.id,))
        return self._read_list(tests), {tables.join_name(test, case): outcome for test, case, outcome in rows}

    def paths(self) -> dict[str, str]:
        """The path of each submission when it was last graded, by name."""
        return dict(self._connection.execute("SELECT submission, path FROM latest").fetchall())

    def read_decisions(self) -> None:
        """Read what staff have decided until now; AssignmentError if something in it is not as it should be."""
        self.decisions = read_toml(self._decided, Decisions) if self._decided.exists() else Decisions()

    def decide(self, decision: Comment, whose: str) -> None:
        """Write down what staff decided, and let every grading that is read from now on have it."""
        write_decision(self._decided, decision, whose)
        self.read_decisions()

    def check_decisions(self, problems: Iterable[str]) -> None:
        """Raise AssignmentError if a decision is about another problem than these."""
        for key, each in self.decisions.each():
            if isinstance(each, Waiver) and each.problem not in problems:
                what = f"is {each.problem!r}, expected one of {', '.join(problems)}"
                raise locate_error(self._decided, Complaint((*key, "problem"), what))

    def list_unused_decisions(self) -> Iterator[str]:
        """Say of each decision that is about nothing that was graded where it stands."""
        known: dict[str, set[str]] = {}
        query = "SELECT DISTINCT submission, path, content, handed_in FROM attempt"
        for submission, path, content, handed_in in self._connection.execute(query):
            with self._naming(submission, path):
                for name in (submission, *parse_handed_in(handed_in).keys):
                    known.setdefault(name, set()).add(content)
        about: list[tuple[Key, str, str]] = [(key, each.student, each.work) for key, each in self.decisions.each()]
        about += [(("counts", student), student, work) for student, work in self.decisions.counts.items()]
        for key, student, work in about:
            if not any(content.startswith(work) for content in known.get(student, ())):
                what = f"is about {' of '.join(filter(None, (work, student)))}"
                yield str(locate_error(self._decided, Complaint(key, what)))

    def _select(self, condition: str, parameters: Any = (), texts: bool = True) -> Iterator[Grading]:
        return map(self._add_decisions, self._read_all(condition, parameters, texts))

    def _read_all(self, condition: str, parameters: Any = (), texts: bool = True) -> Iterator[Grading]:
        columns = tables.COLUMNS if texts else tables.COLUMNS.replace(", texts", "")
        for row in self._connection.execute(f"SELECT id, {columns} FROM attempt WHERE {condition}", parameters):  # noqa: S608
            with self._naming(row["submission"], row["path"]):
                if not self._read_list(row["tests"]):
                    raise LookupError("it has no tests")
                grading = self._read(dict(row), self._read_results(row["id"], row["tests"]) if texts else ())
            yield grading

    def _read_results(self, id: int, tests: int) -> list[Result]:
        """The results of tests that count, each with what it is worth; a test without a result was not run."""
        query = 'SELECT test, "case", said FROM told WHERE attempt = ?'
        told = {tables.join_name(test, case): said for test, case, said in self._connection.execute(query, (id,))}
        found = dict(self._list_passed(tests))
        for test in (each for each in told if each in found):
            worth = {name: getattr(found[test], name) for name in tables.WORTH}
            found[test] = msgspec.convert(worth | msgspec.json.decode(told[test]), Result)
        return [*found.values()]

    def _list_passed(self, tests: int) -> dict[str, Result]:
        """The results of whoever passes all tests of a list; those that are newer were not run."""
        if tests not in self._passed:
            worth = self._weigh(tests)
            new = sorted(test for test, one in worth.items() if not one["ran"])
            found = self._passed[tests] = {}
            for test, hidden in [*self._read_list(tests).items(), *((test, True) for test in new)]:
                if one := worth.get(name_function(test)):
                    ended = (Outcome.PASSED, None, "") if one["ran"] else (Outcome.NOT_RUN, None, NEW)
                    found[test] = Result(test, one["problem"], hidden, bool(one["bonus"]), one["points"], *ended)
        return self._passed[tests]

    @contextmanager
    def _naming(self, submission: str, path: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            what = f"what is recorded of {submission} cannot be read ({error})"
            raise DamagedRow(f"{self._path}: {what}; grade {path} again, or take the gradebook from a backup") from None

    def _read(self, row: dict[str, Any], results: Sequence[Result]) -> Grading:
        said = msgspec.json.decode(row.pop("notes"), type=dict[str, Any])
        said |= msgspec.json.decode(row.pop("texts", "{}"), type=dict[str, Any])
        notes, handed_in = read_notes(said), parse_handed_in(row["handed_in"])
        if self._muted:
            told = tuple(each for each in notes.explanations if each.id not in self._muted)
            notes = replace(notes, explanations=told)
        query = "SELECT problem, bonus, tests, passed, meddled, not_run, maximum, points FROM score WHERE attempt = ?"
        scores = self._connection.execute(query, (row["id"],))
        del row["tests"]
        row |= {"started": datetime.fromisoformat(row["started"]), "notes": notes, "handed_in": handed_in}
        scores = {problem: Score(bool(bonus), *counts) for problem, bonus, *counts in scores}
        return Grading(**row, results=results, scores=scores)

    def _add_decisions(self, grading: Grading) -> Grading:
        names, content = (grading.submission, *grading.handed_in.keys), grading.content
        own = [one for _, one in self.decisions.each() if one.student in names and content.startswith(one.work)]
        if not own:
            return grading
        return replace(
            grading,
            waived={each.problem: each.text for each in own if type(each) is Waiver},
            adjusted={each.problem: (each.points, each.text) for each in own if type(each) is Adjustment},
            comments=tuple(each.text for each in own if type(each) is Comment),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._worth, self._passed, self._attempts = {}, {}, []
                yield self._connection
        except sqlite3.OperationalError as error:  # the disk is full, for example
            raise GradebookError(f"{self._path}: {error}; its contents are intact; try again") from None


def _as_key(grading: Grading) -> dict[str, Any]:
    return vars(grading) | {"handed_in": grading.handed_in.as_json()}


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

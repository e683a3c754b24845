"""The tables of the gradebook: writing an attempt with its outcomes, and taking over what the version before wrote."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from whichline.engine.result import Outcome

Fields = Mapping[str, Any]  # by name
BEFORE, VERSION = 10, 11
SCHEMA = """
-- One submission, graded by one suite. `tests` is the list of those that it was graded with.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    submission TEXT NOT NULL,
    path TEXT NOT NULL,
    content TEXT NOT NULL,
    suite TEXT NOT NULL,
    seed INTEGER NOT NULL,
    layer TEXT NOT NULL,
    started TEXT NOT NULL,
    seconds REAL NOT NULL,
    handed_in TEXT NOT NULL,
    notes TEXT NOT NULL,
    texts TEXT NOT NULL,
    tests INTEGER NOT NULL REFERENCES list,
    UNIQUE (submission, content, suite, handed_in)
);
CREATE TABLE list (id INTEGER PRIMARY KEY, tests TEXT NOT NULL UNIQUE);
-- The tests of an attempt that did not pass. What they say is beside them.
CREATE TABLE outcome (
    attempt INTEGER NOT NULL REFERENCES attempt ON DELETE CASCADE ON UPDATE CASCADE,
    test TEXT NOT NULL,
    "case" TEXT NOT NULL,
    outcome TEXT NOT NULL,
    PRIMARY KEY (attempt, test, "case")
) WITHOUT ROWID;
CREATE TABLE told (
    attempt INTEGER NOT NULL REFERENCES attempt ON DELETE CASCADE ON UPDATE CASCADE,
    test TEXT NOT NULL,
    "case" TEXT NOT NULL,
    said TEXT NOT NULL,
    UNIQUE (attempt, test, "case")
);
CREATE TABLE IF NOT EXISTS problem (
    id TEXT PRIMARY KEY,
    bonus INTEGER NOT NULL,
    points REAL NOT NULL,
    tests TEXT NOT NULL
);
-- What one case of each test function is worth to those who were graded with a list, and how many cases they ran.
CREATE VIEW worth AS
    WITH run AS (
        SELECT list.id AS list, substr(value ->> 0, 1, instr(value ->> 0 || '[', '[') - 1) AS test, count(*) AS cases
        FROM list, json_each(tests) GROUP BY 1, 2
    )
    SELECT list.id AS list, weight.key AS test, problem.id AS problem, bonus, points AS maximum,
        points * weight.value / (SELECT sum(value) FROM json_each(problem.tests)) / ifnull(cases, 1) AS points,
        ifnull(cases, 0) AS ran
    FROM list, problem, json_each(problem.tests) AS weight
    LEFT JOIN run ON run.list = list.id AND run.test = weight.key;
-- All points come from here. A test that was not run counts as one case that failed.
CREATE VIEW counted AS
    SELECT attempt, problem, bonus, sum(max(1, ran)) AS tests, sum(ran - failed) AS passed, sum(meddled) AS meddled,
        sum(ran = 0) AS not_run, maximum,
        iif(sum(failed + (ran = 0)), sum(points * (ran - failed)), maximum) AS points
    FROM (
        SELECT attempt.id AS attempt, worth.*, (
            SELECT count(*) FROM outcome WHERE attempt = attempt.id AND test = worth.test
        ) AS failed, (
            SELECT count(*) FROM outcome WHERE attempt = attempt.id AND test = worth.test AND outcome = 'violation'
        ) AS meddled
        FROM attempt JOIN worth ON list = tests
    )
    GROUP BY attempt, problem;
-- The same, kept: to count a class takes seconds.
CREATE TABLE score (
    attempt INTEGER NOT NULL REFERENCES attempt ON DELETE CASCADE ON UPDATE CASCADE,
    problem TEXT NOT NULL,
    bonus INTEGER NOT NULL,
    tests INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    meddled INTEGER NOT NULL,
    not_run INTEGER NOT NULL,
    maximum REAL NOT NULL,
    points REAL NOT NULL,
    PRIMARY KEY (attempt, problem)
) WITHOUT ROWID;
CREATE VIEW latest AS SELECT * FROM attempt WHERE id IN (SELECT max(id) FROM attempt GROUP BY submission);
"""
COLUMNS = "submission, path, content, suite, seed, layer, started, seconds, handed_in, notes, texts, tests"
# One row of `attempt`.
KEY = "submission = :submission AND content = :content AND suite = :suite AND handed_in = :handed_in"
LONG = ("stdout", "stderr", "sources", "explanations", "figure")  # of the notes, what a class is read without
WORTH = ("test", "problem", "hidden", "bonus", "maximum")  # of a result, what the list and the weights say


def make_tables(connection: sqlite3.Connection, version: int) -> None:
    """Make all tables, with what the version before has recorded, if this is one."""
    if version:
        connection.execute("DROP VIEW latest")
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    if version:
        for (id,) in connection.execute("SELECT id FROM grading ORDER BY id").fetchall():
            row = dict(connection.execute("SELECT * FROM grading WHERE id = ?", (id,)).fetchone())
            try:
                notes, results = json.loads(row["notes"]), json.loads(row["results"])
                for each in results:
                    if each.get("check") in ("answer", "output", "gradient"):  # its headline may name whose it is
                        each.setdefault("kind", "a wrong answer")
                put_attempt(connection, row, notes, results, id)
            except (ValueError, TypeError, LookupError, AttributeError):
                put_attempt(connection, row, {}, [], id)  # without tests it cannot be read
        connection.execute("DROP TABLE grading")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def put_attempt(
    connection: sqlite3.Connection, row: Fields, notes: Fields, results: Sequence[Fields], id: int | None = None
) -> None:
    """Write an attempt in the place of the one with its key; without an `id` it is the last one."""
    tests = json.dumps([(each["test"], each["hidden"]) for each in results])
    connection.execute("INSERT OR IGNORE INTO list (tests) VALUES (?)", (tests,))
    (listed,) = connection.execute("SELECT id FROM list WHERE tests = ?", (tests,)).fetchone()
    parts = [
        json.dumps({name: x for name, x in notes.items() if (name in LONG) is long}, ensure_ascii=False)
        for long in (False, True)
    ]
    now = {**row, "id": id, "tests": listed, "notes": parts[0], "texts": parts[1]}
    connection.execute(f"DELETE FROM attempt WHERE {KEY}", now)  # noqa: S608
    values = COLUMNS.replace(", ", ", :")
    id = connection.execute(f"INSERT INTO attempt (id, {COLUMNS}) VALUES (:id, :{values})", now).lastrowid  # noqa: S608
    for each in results:
        if each["outcome"] != Outcome.PASSED:
            key = (id, *split_name(each["test"]))
            said = json.dumps({name: x for name, x in each.items() if name not in WORTH}, ensure_ascii=False)
            connection.execute("INSERT INTO outcome VALUES (?, ?, ?, ?)", (*key, each["outcome"]))
            connection.execute("INSERT INTO told VALUES (?, ?, ?, ?)", (*key, said))
    connection.execute("INSERT INTO score SELECT * FROM counted WHERE attempt = ?", (id,))


def split_name(test: str) -> tuple[str, str]:
    function, _, case = test.partition("[")
    return function, case.removesuffix("]")


def join_name(function: str, case: str) -> str:
    return f"{function}[{case}]" if case else function

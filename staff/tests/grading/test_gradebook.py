"""The gradebook: whole entries, one for each content and suite, and no file of a version it does not know."""

import json
import sqlite3
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from staff.tests import ROOT
from whichline.engine.assignment import Problem
from whichline.engine.result import Check, Outcome, Result
from whichline.engine.toml_file import Signed
from whichline_grader.grading.decisions import Adjustment, Waiver
from whichline_grader.grading.gradebook import Gradebook, GradebookError
from whichline_grader.grading.graded import Drawn, Grading, Notes, Score
from whichline_grader.grading.identity import HandedIn, Student

ROWS = (
    Result("test_softmax[1d]", "softmax", False, False, 2.0, Outcome.PASSED),
    Result(
        *("test_hidden_softmax[1d]", "softmax", True, False, 1.0, Outcome.FAILED, Check.ANSWER),
        *("wrong", ("line 1", "  line 2"), ("row 0 sums to 2",), ("the case is 1d:", "")),
        see="run 1d",
        kind="wrong",
        place="adapters.py:3",
        raised="ValueError",
        functions=(("adapters.py", "run_softmax"),),
        staff="wrong: 1 and 2",
        seconds=0.1,
    ),
)
GRADING = Grading(
    *("ada", "/submissions/ada.zip", "c" * 64, "d" * 64, 7, "bubblewrap", datetime(2026, 10, 1, tzinfo=UTC), 0.3),
    notes=Notes(stdout="hello"),
    handed_in=HandedIn((Student("ada", "Ada"),), order=1, at=datetime(2026, 9, 30, tzinfo=UTC)),
    results=list(ROWS),
)
WEIGHTS = {"test_softmax": 2.0, "test_hidden_softmax": 1.0}
PROBLEMS = {"softmax": Problem("softmax", "Softmax", 3.0, (), WEIGHTS, ())}
TODO = "take it from a backup; without one, move everything but decisions.toml out of .* and grade everybody again"
BEFORE = """
CREATE TABLE grading (id INTEGER PRIMARY KEY, submission, path, content, suite, seed, layer, started, seconds, notes,
    handed_in, results);
CREATE TABLE problem (id TEXT PRIMARY KEY, bonus INTEGER NOT NULL, points REAL NOT NULL, tests TEXT NOT NULL);
CREATE VIEW latest AS SELECT * FROM grading WHERE id IN (SELECT max(id) FROM grading GROUP BY submission);
PRAGMA user_version = 10;
"""


def new_gradebook(folder: Path) -> Gradebook:
    """A gradebook that knows what the tests of GRADING are worth."""
    gradebook = Gradebook(folder / "gradebook.sqlite")
    gradebook.score_with(PROBLEMS)
    return gradebook


def scored(grading: Grading) -> Grading:
    """The same with its scores, as a gradebook adds up what its results are worth."""
    weights: dict[str, dict[str, float]] = {}
    for each in grading.results:
        own = weights.setdefault(each.problem, {})
        own[each.function] = own.get(each.function, 0.0) + each.maximum
    bonus = {each.problem for each in grading.results if each.bonus}
    problems = {id: Problem(id, id, sum(own.values()), (), own, (), id in bonus) for id, own in weights.items()}
    with TemporaryDirectory() as folder, Gradebook(Path(folder, "gradebook.sqlite")) as gradebook:
        gradebook.score_with(problems)
        gradebook.add(grading)
        (read,) = gradebook.latest(texts=False)
    return replace(grading, scores=read.scores)


def test_a_grading_comes_back_as_it_was(tmp_path):
    figure = Drawn("Weights", "query", "Yours are right.", "all", ((0.5, None),), ((0.5, 0.5),), ((True, False),))
    grading = replace(GRADING, notes=Notes(stdout="hello", figure=figure))
    with new_gradebook(tmp_path) as gradebook:
        gradebook.add(grading)
    with new_gradebook(tmp_path) as gradebook:
        (read,) = gradebook.latest()
        assert read == grading
        assert (read.points, read.maximum) == (2, 3)
        assert gradebook.find("ada", "c" * 64, "d" * 64) == grading
        assert gradebook.find("ada", "c" * 64, "e" * 64) is None


def test_what_is_not_the_students_own_is_charged_with_the_present_weights(tmp_path):
    attention = Problem("attention", "Attention", 4.0, (), {"test_attention": 1.0}, ())
    again = Result("test_attention", "attention", False, False, 4.0, Outcome.PASSED)
    lines = {"softmax": ("torch.softmax in a.py:1: x",)}
    notes = Notes(forbidden={"softmax": lines, "attention": lines})
    for problem, worth, charged in (("softmax", 3.0, 2.0), ("softmax", 6.0, 4.0), ("attention", 5.0, 0.0)):
        with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
            gradebook.score_with({"softmax": replace(PROBLEMS["softmax"], points=worth), "attention": attention})
            gradebook.add(replace(GRADING, notes=notes, results=[*ROWS, again]))
            if problem == "attention":  # staff count what softmax did, and nobody pays it instead
                gradebook.decide(Waiver(student="ada", problem="softmax", text="agreed"), "Ada")
            (grading,) = gradebook.latest()
        earned = worth * 2 / 3
        assert grading.compute_points("softmax") == pytest.approx(earned - charged)
        assert grading.points == pytest.approx(4.0 + earned - charged)
        assert grading.violations == {"softmax": list(lines["softmax"])}


def test_the_same_content_and_suite_has_one_grading_and_the_latest_content_counts(tmp_path):
    again, newer = replace(GRADING, seconds=9.0), replace(GRADING, content="f" * 64)
    with new_gradebook(tmp_path) as gradebook:
        for each in (GRADING, again, newer):
            gradebook.add(each)
            assert list(gradebook.latest()) == [each]
        with sqlite3.connect(tmp_path / "gradebook.sqlite") as connection:
            assert connection.execute("SELECT count(*) FROM attempt").fetchone() == (2,)
        for _ in range(2):  # the first content is handed in again
            first = gradebook.find("ada", GRADING.content, GRADING.suite)
            assert first
            gradebook.hand_in_again(first, GRADING.path, GRADING.handed_in)
            assert list(gradebook.latest()) == [again]
        assert gradebook.find("ada", "f" * 64, "d" * 64) == newer


def test_a_class_is_read_without_texts(tmp_path):
    with new_gradebook(tmp_path) as gradebook:
        gradebook.add(replace(GRADING, notes=Notes(stdout="hello", missing=("wandb",))))
        (grading,) = gradebook.latest(texts=False)
    assert grading.notes == Notes(missing=("wandb",))
    assert not grading.results
    assert grading.scores == {"softmax": Score(False, tests=2, passed=1, meddled=0, not_run=0, maximum=3.0, points=2.0)}


def test_what_the_page_for_staff_asks_the_gradebook_can_be_asked(tmp_path):
    page = (ROOT / "packages/grader/whichline_grader/docs/running-a-course.md").read_text()
    most, attempts, _ = page.partition("```sql\n")[2].partition("```")[0].split(";")
    with new_gradebook(tmp_path) as gradebook:
        gradebook.add(replace(GRADING, submission="lovelaceada_1"))
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as connection:
        assert connection.execute(most).fetchall() == [("test_hidden_softmax", 1)]
        assert connection.execute(attempts).fetchall() == [(GRADING.path, GRADING.started.isoformat(), 2.0)]


def test_a_decision_holds_for_this_content_whatever_suite_grades_it(tmp_path):
    grading = replace(GRADING, notes=Notes(forbidden={"softmax": {"softmax": ("torch.softmax in a.py:1: x",)}}))
    work = GRADING.content[:12]
    with new_gradebook(tmp_path) as gradebook:
        gradebook.add(grading)
        gradebook.decide(Waiver(student="ada", work=work, problem="softmax", text="agreed"), "Ada")
        adjustment = Adjustment(student="ada", work=work, problem="softmax", points=Signed(-0.5), text="late")
        gradebook.decide(adjustment, "Ada")
        gradebook.add(replace(grading, suite="e" * 64))  # graded again, by another suite
        alan = replace(grading, submission="alan", handed_in=HandedIn((Student("alan", "Alan"),)))
        gradebook.add(alan)
        gradebook.add(replace(grading, content="f" * 64))
        after = gradebook.find("ada", GRADING.content, "e" * 64)
        other, newer = gradebook.of("alan"), gradebook.of("ada")
    assert after
    assert (after.waived, after.adjusted, after.points) == ({"softmax": "agreed"}, {"softmax": (-0.5, "late")}, 1.5)
    assert other == alan
    assert newer == replace(grading, content="f" * 64)


def test_the_gradebook_of_the_version_before_is_taken_over(tmp_path):
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as connection:
        connection.executescript(BEFORE)
        connection.execute("INSERT INTO problem VALUES ('softmax', 0, 3.0, ?)", (json.dumps(WEIGHTS),))
        for id, submission in ((3, "ada"), (4, "eve")):
            own = vars(GRADING) | {"id": id, "submission": submission, "started": GRADING.started.isoformat()}
            own |= {"notes": json.dumps(asdict(GRADING.notes)), "handed_in": GRADING.handed_in.as_json()}
            own |= {"results": f"[{','.join(row.as_json() for row in ROWS)}]"}
            names = [name for _, name, *_ in connection.execute("PRAGMA table_info(grading)")]
            values = ", ".join(f":{name}" for name in names)
            connection.execute(f"INSERT INTO grading VALUES ({values})", {name: own[name] for name in names})  # noqa: S608
        connection.execute("UPDATE grading SET results = '[' WHERE submission = 'eve'")
    for _ in range(2):
        with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
            assert gradebook.of("ada") == GRADING
            with pytest.raises(GradebookError, match="what is recorded of eve cannot be read"):
                gradebook.of("eve")


def write_version(version: int, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(write_version, 99), "gradebook.sqlite has version 99.*use the newer program"),
        (partial(write_version, 9), f"gradebook.sqlite has version 9.*{TODO}"),
        (Path.mkdir, "gradebook.sqlite: unable to open"),
        (lambda path: path.write_text("no database, and long" * 9), f"sqlite: file is not a database; {TODO}"),
    ],
)
def test_what_is_no_gradebook_of_this_program_is_refused_by_name(tmp_path, make, message):
    make(tmp_path / "gradebook.sqlite")
    before = list(tmp_path.iterdir())
    with pytest.raises(GradebookError, match=message):
        Gradebook(tmp_path / "gradebook.sqlite")
    assert list(tmp_path.iterdir()) == before

"""The gradebook: whole entries, one for each content and suite, and no file of a version it does not know."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cs336_staff.grading.gradebook import Gradebook, GradebookError, Grading, Row

ROWS = (
    Row("test_softmax[1d]", "softmax", False, 2.0, False, "passed", True, 0.1, "", ""),
    Row("test_hidden_softmax[1d]", "softmax", True, 1.0, False, "failed", False, 0.1, "wrong", "wrong: 1 and 2"),
)
GRADING = Grading(
    *("ada", "/submissions/ada.zip", "c" * 64, "d" * 64, 7, "bubblewrap", datetime(2026, 10, 1, tzinfo=UTC), 0.3),
    about={"stdout": "hello"},
    rows=list(ROWS),
)


def test_a_grading_comes_back_as_it_was(tmp_path):
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(GRADING)
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        assert list(gradebook.latest()) == [GRADING]
        assert gradebook.find("ada", "c" * 64, "d" * 64) == GRADING
        assert gradebook.find("ada", "c" * 64, "e" * 64) is None
    assert GRADING.points == 2
    assert GRADING.maximum == 3


def test_bonus_points_come_on_top_of_the_maximum(tmp_path):
    extra = Row("test_blocks", "blocks", True, 2.0, True, "passed", True, 0.1, "", "")
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(replace(GRADING, rows=[*ROWS, extra]))
        (grading,) = gradebook.latest()
    assert grading.rows[-1] == extra
    assert (grading.points, grading.maximum) == (4, 3)


def test_the_same_content_and_suite_has_one_grading(tmp_path):
    again = replace(GRADING, seconds=9.0)
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(GRADING)
        gradebook.add(again)
        assert list(gradebook.latest()) == [again]
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM verdict").fetchone() == (2,)


def test_the_latest_content_counts(tmp_path):
    newer = replace(GRADING, content="f" * 64)
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(GRADING)
        gradebook.add(newer)
        assert list(gradebook.latest()) == [newer]
        gradebook.make_latest(GRADING)  # the first content is handed in again
        assert list(gradebook.latest()) == [GRADING]
        gradebook.make_latest(GRADING)
        assert gradebook.find("ada", "f" * 64, "d" * 64) == newer


def test_a_class_is_read_without_texts(tmp_path):
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(replace(GRADING, about={"stdout": "hello", "missing": ["wandb"]}))
        (grading,) = gradebook.latest(texts=False)
    assert grading.about == {"missing": ["wandb"]}
    assert grading.rows == [replace(row, message="", details="") for row in ROWS]


def test_what_is_overruled_counts_for_this_content_until_it_is_taken_back(tmp_path):
    right = replace(ROWS[0], outcome="violation", message="passed, but")
    meddled = replace(ROWS[0], name="test_softmax[2d]", outcome="violation", right=False)
    elsewhere = replace(right, name="test_rope", problem="rope")
    grading = replace(GRADING, rows=[right, meddled, elsewhere])
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(grading)
        gradebook.overrule(grading, "softmax", "agreed")
        gradebook.add(replace(grading, suite="e" * 64))  # graded again, by another suite
        gradebook.add(replace(grading, submission="alan"))
        gradebook.overrule(grading, "softmax", "agreed again")
        after, other = gradebook.of("ada"), gradebook.of("alan")
        assert after
        assert [row.outcome for row in after.rows] == ["passed", "violation", "violation"]
        assert after.rows[0].message == "counted by staff: agreed again"
        assert after.overruled == {"softmax": "agreed again"}
        assert other == replace(grading, submission="alan")
        gradebook.overrule(grading, "softmax", None)
        assert gradebook.find("ada", "c" * 64, "d" * 64) == grading


def test_grades_can_be_written_again_only_after_they_were_written(tmp_path):
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        with pytest.raises(GradebookError, match="run cs336 staff grade to its end first"):
            _ = gradebook.course
        gradebook.course = {"attempt": "best"}
        gradebook.course = {"attempt": "latest"}
        assert gradebook.course == {"attempt": "latest"}


@pytest.mark.parametrize(("version", "todo"), [(99, "use the newer program"), (2, "grade into a new folder")])
def test_a_gradebook_of_another_version_is_refused_by_name(tmp_path, version, todo):
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(GradebookError, match=rf"gradebook.sqlite has version {version}.*{todo}"):
        Gradebook(tmp_path / "gradebook.sqlite")


def test_a_folder_without_a_gradebook_gets_none(tmp_path):
    with pytest.raises(GradebookError, match=r"no gradebook in .*; name the folder that `cs336 staff grade` wrote"):
        Gradebook.of_results(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_gradebook_is_refused_by_name(tmp_path):
    (tmp_path / "gradebook.sqlite").mkdir()
    with pytest.raises(GradebookError, match=r"gradebook.sqlite: unable to open"):
        Gradebook.of_results(tmp_path)


def test_a_file_that_is_no_gradebook_is_refused_by_name(tmp_path):
    (tmp_path / "gradebook.sqlite").write_text("no database at all, but long enough to be looked at")
    with pytest.raises(GradebookError, match=r"gradebook.sqlite: file is not a database"):
        Gradebook(tmp_path / "gradebook.sqlite")

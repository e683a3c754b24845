"""What staff state in assignment.toml and course.toml is checked whole by every command."""

import os
import re
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import write_files
from staff.tests.grading.conftest import invoke, succeed
from staff.tests.grading.shadow_class import MAXIMUM
from staff.tests.grading.test_gradebook import GRADING
from staff.tests.grading.test_grades import grade_in_batch, gradebook_with, graded, rows, write_all
from whichline.engine.assignment import load_problems
from whichline.engine.finding import Finding
from whichline_grader.grading.course import Course, Late, find_checked_root, load_course, results_folder
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Notes
from whichline_grader.hidden import release
from whichline_grader.paths import COURSE

ASSIGNMENT = "assignment.toml"
HINTS = re.findall(r"hints = \[.*?\n\]", (ROOT / ASSIGNMENT).read_text(), re.DOTALL)[0]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of these two files, and empty ones where students write."""
    write_files(tmp_path, {file: (ROOT / file).read_bytes() for file in (ASSIGNMENT, COURSE)})
    for folder in ("tests", "problems"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    write_files(tmp_path, {file: "" for problem in load_problems(ROOT).values() for file in problem.files})
    monkeypatch.setattr(release, "COURSE", tmp_path / COURSE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(tree: Path, file: str, old: str, new: str) -> int:
    """Edit a file; the first line that is another one now."""
    path = tree / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    lines = zip(text.splitlines(), path.read_text().splitlines(), strict=False)
    return next(number for number, (before, now) in enumerate(lines, start=1) if before != now)


AFFINE = '[[problem]]\nid = "affine"\ntitle = "Affine"\npoints = 0\nfiles = []'
LAST_DIGIT = "test_linear_to_the_last_digit"
# The old text, the new one, and the complaint.
IN_ASSIGNMENT = [
    ("points = 2", "points = -2", "problem.points is -2, expected a number, 0 or more"),
    ("points = 2", "points = 'two'", "problem.points is 'two', expected a number"),
    ("points = 2", "points = nan", "problem.points is nan, expected a number"),
    ("points = 2", "point = 2", "problem.point is not a known key; did you mean points?"),
    ("points = 2\n", "", "problem.points is missing"),
    ("bonus = true", "bonus = 'yes'", "problem.bonus is 'yes', expected true or false"),
    (HINTS, "hints = 'one'", "problem.hints is 'one', expected a list"),
    ('"cs336_basics/nn/linear.py"', "3", "problem.files is 3, expected a text"),
    ("nn/linear.py", "nn/lineal.py", "problem.files names .*lineal.py, and there is no such file"),
    ("test_linear = 4", "test_linear = -4", "problem.tests.test_linear is -4, expected a number"),
    ("test_linear = 4", "test_rope = 4", "problem.tests.test_rope is there twice"),
    (f"linear = 4\n{LAST_DIGIT} = 1", f"linear = 0\n{LAST_DIGIT} = 0", "problem.tests of linear gives no test"),
    ('id = "rope"', 'id = "linear"', "problem.id linear is there twice"),
    ('title = "Softmax"', 'title = ""', "problem.title is '', expected a text"),
    ("[[problem]]", "[problem]", r"is not TOML: Cannot overwrite a value \(at line"),
    ("points = 2", "points = ", r"is not TOML: Invalid value \(at line LINE, column 10\)"),
    ("test_hidden_softmax = 22", "test_softmax = 22", "problem.hidden.test_softmax is there twice"),
    ("[[problem]]", f"{AFFINE}\n[[problem]]", "problem.tests of affine is missing, and so is tests/test_affine.py"),
    ("test_softmax = 5", "test_sofmax = 5", "tests.test_sofmax weighs no test; did you mean test_softmax"),
    ("test_hidden_linear = 16", "test_linear_hid = 16", "hidden.test_linear_hid weighs no test; did you"),
    ("test_hidden_linear = 16\n", "", "gives no weight to test_hidden_linear of problems/linear/staff/hidden_tests.py"),
    ('id = "decoding"', 'id = "deco"', "deco/staff/hidden_tests.py is missing: assignment.toml has a problem deco"),
]
IN_COURSE = [
    ('# attempt = "best"', 'attempt = "latest"', "attempt is 'latest', expected 'last' or 'best'"),
    ("# due = 2026-10-01T23:59:00-07:00", "due = 2026-10-01T23:59:00", "due is .*, expected a date with time and"),
    ("# [extensions] ", "[extensions]\n1 = 2026-10-01T23:59:00Z", "extensions are there, and no key due"),
    (
        "# [extensions] ",
        "extensions.1 = 2026-10-01T00:00:00Z\ndue = 2026-10-01T23:59:00Z #",
        "extensions.1 is 2026-10-01 00:00:00.00:00, before everybody's deadline, 2026-10-01 23:59:00.00:00",
    ),
    ("# roster = ", "roster = ", "roster names .*roster.csv, and there is no such file"),
    ("# [late]", "late.free_days = 1.5 #", "late.free_days is 1.5, expected a whole number"),
    ("# [late]", "late.percent = 110 #", "late.percent is 110, expected at most 100"),
    ("# [limits]", "limits.memory = 5 #", "limits.memory is not a known key; did you mean memory_bytes?"),
    ("# [limits]", "limits.seconds = 0 #", "limits.seconds is 0: no submission could run"),
    ("# muted = ", "muted = ['Halves of RoPE'] #", "muted has 'Halves of RoPE', expected ids of findings, as in"),
]
EDITS = [*((ASSIGNMENT, *each) for each in IN_ASSIGNMENT), *((COURSE, *each) for each in IN_COURSE)]


@pytest.mark.parametrize(("file", "old", "new", "message"), EDITS)
def test_a_bad_edit_is_named_by_file_line_and_key(tree: Path, file: str, old: str, new: str, message: str) -> None:
    gradebook_with(tree / "staff", ada=2.0).close()
    line = edit(tree, file, old, new)
    result = invoke("rescore", "--out", "staff")
    assert isinstance(result.exception, SystemExit), result.output
    said = next(each for each in result.output.splitlines() if re.search(message.replace("LINE", str(line)), each))
    if not re.search("missing|twice|no test|no weight|not TOML|already", said):  # else it is the line of something else
        assert f"{tree / file}:{line}: " in said, said


def test_the_examples_in_the_file_can_be_taken(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commented line that has a key, without its `#`."""
    path = tree / COURSE
    lines = path.read_text().splitlines()
    lines = [line.removeprefix("# ") if re.match(r"# \[|.*  # ", line) else line for line in lines]
    path.write_text("\n".join(lines))
    monkeypatch.setenv("HOME", str(tree))
    tables = {"roster.csv": "Student,ID,Attention (55)\n", "groups.csv": "group_name,canvas_user_id,name\n"}
    folder = write_files(tree / "courses/attention-2027", tables | {"times.csv": "file_id,submitted_at\n"})
    find_checked_root()
    course = load_course(tree)
    west = timezone(timedelta(hours=-7))
    assert course.due == datetime(2026, 10, 1, 23, 59, tzinfo=west)
    assert course.extensions == {"1234": datetime(2026, 10, 5, 23, 59, tzinfo=west)}
    assert (course.attempt, course.platform) == ("best", "canvas")
    assert (course.late, course.column) == (Late(3, 10.0), "Attention (55)")
    assert (course.roster, course.groups) == (str(folder / "roster.csv"), str(folder / "groups.csv"))
    assert results_folder() == folder / "results"
    assert course.limits == Course().limits


def test_a_course_that_is_missing_is_named(tree: Path) -> None:
    (tree / COURSE).unlink()
    assert invoke("report", os.curdir).output.startswith(f"Error: cannot read {tree / COURSE}: No such file")


def run(*arguments: str) -> str:
    """What a command of staff prints, with single spaces."""
    return " ".join(succeed(*arguments).split())


def test_without_weights_hidden_tests_weigh_four_times_as_much_as_public_ones(tree: Path) -> None:
    weights = re.compile(r"\[problem\.tests\]\ntest_linear = 4\n.*?(?=\[\[problem\]\])", re.DOTALL)
    (tree / ASSIGNMENT).write_text(weights.sub("", (tree / ASSIGNMENT).read_text()))
    problem = release.load_graded_problems(tree)["linear"]
    public, hidden = {"test_linear", "test_linear_to_the_last_digit"}, {"test_linear_of_any_shape"}
    hidden |= {"test_hidden_linear", "test_hidden_linear_to_the_last_digit"}
    assert problem.tests == {**dict.fromkeys(public, 1), **dict.fromkeys(hidden, 4)}
    assert load_problems(tree)["linear"].tests.keys() == public


def test_recorded_results_are_scored_again_and_diff_says_why(tree: Path) -> None:
    old, new = tree / "old", tree / "results"
    new.mkdir()
    write_all(new, Course(), ada=2.0, alan=3.0)
    run("rescore")
    shutil.copytree(new, old)
    assert "No grade changed" in run("rescore", "--against", "old")
    edit(tree, ASSIGNMENT, "points = 15", "points = 17")
    edit(tree, ASSIGNMENT, "points = 2", "points = 4")
    edit(tree, COURSE, "# [late]", "late.percent = 10 #")
    printed = run("rescore")
    ada = rows(new / "grades.csv")["ada"]
    worth = release.load_graded_problems(tree)["softmax"].worth("test_softmax")
    assert float(ada["softmax"]) == pytest.approx(worth * 2 / 3, abs=1e-4)
    assert ada["maximum"] == f"{MAXIMUM + 2:g}"
    assert (new / "ada" / "feedback.md").read_text().splitlines()[0].endswith(f"of {MAXIMUM + 2:g} points")
    for said in (printed, run("rescore", "--against", "old")):
        assert "other weights" in said
        assert f"softmax {worth / 2:.4g} → {worth:.4g}" in said  # of alan, who has all of it
        assert f"maximum {MAXIMUM:g} → {MAXIMUM + 2:g}" in said
    edit(tree, ASSIGNMENT, "Print what yours sum to", "Do yours")
    assert "No grade changed 2 grades scored with the present weights" in run("rescore")
    with gradebook_with(new) as gradebook:
        gradebook.add(graded("ada", 3.0, "b" * 64))
        gradebook.add(replace(graded("alan", 1.0), suite="f" * 64, started=GRADING.started + timedelta(days=1)))
    assert "Graded by an earlier suite than the others, so grade again: ada" in run("rescore")
    notes = {name: row["notes"] for name, row in rows(new / "grades.csv").items()}
    assert [name for name in notes if "graded by an earlier suite" in notes[name]] == ["ada"]
    printed = run("rescore", "--against", "old")
    assert "other work counts" in printed
    assert "test_softmax[2], test_softmax[3] and 2 more" in printed


def test_a_muted_finding_is_told_nowhere_until_it_is_no_longer_muted(tree: Path) -> None:
    untrue, true = (Finding("softmax", f"softmax-{kind}", (f"It is {kind}.",)) for kind in ("untrue", "true"))
    out = tree / "results"
    out.mkdir()
    write_all(out, Course(), replace(graded("ada", 1.0), notes=Notes(explanations=(untrue, true))))

    def list_seen() -> set[str]:
        """The files that tell the finding, once all of them are written again."""
        for command in ("rescore", "report"):
            run(command)
        texts = {path: path.read_text() for path in out.rglob("*") if path.is_file() and "sqlite" not in path.name}
        told = (text for path, text in texts.items() if path.name not in ("grades.csv", "changes.csv", ".writing"))
        assert all("It is true" in text for text in told)
        return {path.name for path, text in texts.items() if "untrue" in text}

    everywhere = {"feedback.md", "results.json", "findings.csv", "index.html", "ada.html"}
    assert list_seen() == everywhere
    (tree / COURSE).write_text('muted = ["softmax-untrue"]\n')
    assert list_seen() == set()
    assert "reports on 1 submission: its page is in" in run("report")
    (tree / COURSE).write_text("")
    assert list_seen() == everywhere


def test_what_is_graded_while_a_finding_is_muted_has_it_later(tmp_path: Path) -> None:
    untrue = Finding("softmax", "softmax-untrue", ("It is untrue.",))
    course = Course(muted=(untrue.id,), platform="canvas")
    for name in ("ada_1_2_x.py", "ada_1_3_x-1.py"):  # the same content as another attempt
        (tmp_path / name).write_text("def run_softmax(x, dim):\n    return x\n")
        with grade_in_batch(tmp_path, tmp_path / name, notes=Notes(explanations=(untrue,)), course=course) as gradebook:
            assert not any(gradebook.with_texts(each).notes.explanations for each in gradebook.attempts())
    assert "untrue" not in "".join(path.read_text() for path in (tmp_path / "results").glob("*/*"))
    with Gradebook(tmp_path / "results" / "gradebook.sqlite") as gradebook:
        assert [gradebook.with_texts(each).notes.explanations for each in gradebook.attempts()] == [(untrue,)] * 2

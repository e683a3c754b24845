"""Decisions of staff on a gradebook of recorded results: nothing is run."""

import json
import multiprocessing
import re
import shlex
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import rows_of, write_files
from staff.tests.grading.conftest import invoke, succeed
from staff.tests.grading.shadow_class import MAXIMUM
from staff.tests.grading.test_grades import SOFTMAX, grade_in_batch, gradebook_with, graded, rows
from whichline.engine.errors import CourseworkError
from whichline.engine.finding import Finding
from whichline_grader.grading import gradebook as gradebooks
from whichline_grader.grading import reports
from whichline_grader.grading.course import Course
from whichline_grader.grading.final_grades import find_grade, grades
from whichline_grader.grading.gradebook import Gradebook, GradebookError
from whichline_grader.grading.graded import Notes

WHY = "test_softmax[2d] was wrong"
ADJUST = '[[adjust]]\nstudent = "a"\nproblem = "p"\ntext = "x"\n'
WAIVE = '[[waive]]\nstudent = "ada"\ntext = "x"\n'
NOBODY = "no student or submission is called {}; grades.csv lists the names"
NO_VIOLATION = "ada has a violation of the rules in no problem, expected one in some problem"


@pytest.fixture(autouse=True)
def course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def hand_in(folder: Path, *names: str) -> list[Path]:
    """A submission of each student, and none like another."""
    write_files(folder, {f"{name}.py": f"def run_softmax(x, dim):\n    return '{name}'\n" for name in names})
    return [folder / f"{name}.py" for name in names]


def row(out: Path, student: str = "ada") -> dict[str, str]:
    return rows(out / "grades.csv")[student]


def score(out: Path) -> float:
    return json.loads((out / "ada" / "results.json").read_text())["score"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Results in which `ada` passes half of the cases of test_softmax, and `alan` all."""
    gradebook_with(tmp_path, ada=1.5, alan=3.0).close()
    (tmp_path / "grades.csv").write_text("student,grade\n")
    succeed("rescore", "--out", tmp_path)
    return tmp_path


def test_points_are_added_and_taken_back(out):
    before, alan = row(out), row(out, "alan")
    points = float(before["points"])
    said = succeed("adjust", "ada", "softmax", "+0.5", "--because", WHY, "--out", out)
    assert f"ada: {points + 0.5:.2f} of {MAXIMUM:g} points, {points:.2f} before" in said
    now = row(out)
    assert float(now["softmax"]) == pytest.approx(float(before["softmax"]) + 0.5, abs=1e-3)
    assert float(now["grade"]) == pytest.approx(points + 0.5, abs=1e-3)
    assert f"softmax: +0.5 points by staff: {WHY}" in now["notes"]
    assert score(out) == pytest.approx(points + 0.5, abs=0.006)
    assert f"softmax: +0.5 points by staff: {WHY}" in (out / "ada" / "results.json").read_text()
    feedback = (out / "ada" / "feedback.md").read_text()
    assert f"softmax: +0.5 points by staff: {WHY}" in feedback
    assert f"| Softmax | {float(now['softmax']):.2f} / 2 |" in feedback
    assert row(out, "alan") == alan
    # The second takes the place of the first; a negative number is no option.
    assert f"Written to {out / 'decisions.toml'}" in said
    said = succeed("adjust", "ada", "softmax", "-0.05", "--because", "a slip", "--out", out)
    assert f"It replaces +0.5 points: {WHY}\n" in said
    assert score(out) == pytest.approx(points - 0.05, abs=0.006)
    (out / "decisions.toml").unlink()
    succeed("rescore", "--out", out)
    assert row(out) == before


def test_decisions_are_a_text_that_people_edit(out):
    succeed("adjust", "ada", "softmax", "-0.05", "--because", 'a "slip"', "--out", out)
    text = (out / "decisions.toml").read_text()
    whose = '[[adjust]]  # ada\nstudent = "ada"\nwork = "cccccccccccc"\n'
    entry = whose + 'problem = "softmax"\npoints = -0.05\ntext = "a \\"slip\\""\n'
    assert text.startswith("# What staff decided about grades; nothing else records it.")
    assert text.endswith(f"\n\n{entry}")
    by_hand = '[[adjust]]\nstudent = "ada"\nproblem = "softmax"\npoints = +1\ntext = "agreed"\n[counts]\nalan = "cc"\n'
    (out / "decisions.toml").write_text(by_hand)
    before = float(row(out)["softmax"])
    assert "Whose grade changed" in succeed("rescore", "--out", out)
    assert float(row(out)["softmax"]) == pytest.approx(before + 1.05, abs=1e-3)
    succeed("adjust", "alan", "--because", "Nice einsum.", "--out", out)
    assert (out / "decisions.toml").read_text().startswith(by_hand)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[adjust", "decisions.toml is not TOML: Expected ']]' at the end of an array declaration (at "),
        ('[[comment]]\nwho = "ada"', "decisions.toml:2: comment.who is not a known key; the keys are student, "),
        (f"{ADJUST}points = true", "decisions.toml:5: adjust.points is True, expected a number, such as +0.5 or -1"),
        (f'{WAIVE}problem = "sofmax"', "decisions.toml:4: waive.problem is 'sofmax', expected one of softmax, "),
    ],
)
def test_a_mistake_in_the_decisions_is_named_with_its_line(out, text, message):
    before = (out / "grades.csv").read_text()
    (out / "decisions.toml").write_text(text)
    finished = invoke("rescore", "--out", out)
    assert finished.exit_code == 1
    assert message in finished.output
    assert (out / "grades.csv").read_text() == before


def test_decisions_about_nothing_that_was_graded_are_listed(out):
    about = '[[comment]]\nstudent = "{}"\ntext = "x"\n{}\n'
    text = about.format("ada", "") + about.format("nobody", "") + about.format("ada", 'work = "ab"')
    (out / "decisions.toml").write_text(f'{text}[counts]\nkurt = "cc"\n')
    said = "".join(succeed("rescore", "--out", out).split())
    lines = ("5: comment is about nobody", "9: comment is about ab of ada", "14: counts.kurt is about cc of kurt")
    listed = "; ".join(f"{out / 'decisions.toml'}:{line}" for line in lines)
    assert f"What staff decided is about nothing that was graded: {listed}".replace(" ", "") in said


def test_what_a_killed_batch_has_graded_gets_its_grades(out):
    (out / "grades.csv").unlink()
    assert "Whose grade changed" not in succeed("rescore", "--out", out)
    assert float(row(out, "alan")["softmax"]) > float(row(out)["softmax"])


@pytest.mark.parametrize("arguments", ["rescore --out OUT", "report OUT", "adjust ada rope 1 --because x --out OUT"])
def test_a_gradebook_that_is_missing_or_empty_takes_no_grades_away(out, arguments):
    (out / "gradebook.sqlite").unlink()
    before = (out / "grades.csv").read_text()
    words = arguments.replace("OUT", str(out)).split()
    assert invoke(*words).output.startswith(f"Error: {out} has results and no gradebook.sqlite: take it from a backup")
    for report in out.glob("*/results.json"):
        report.unlink()
    missing = f"Error: no gradebook in {out}; name the folder that `staff grade` wrote\n"
    assert invoke(*words).output == missing
    nowhere = arguments.replace("OUT", f"{out}/nowhere").split()
    assert invoke(*nowhere).output == missing.replace(str(out), f"{out}/nowhere")
    Gradebook(out / "gradebook.sqlite").close()
    assert invoke(*words).output == f"Error: the gradebook in {out} is empty; grade a submission into it first\n"
    assert (out / "grades.csv").read_text() == before
    assert not (out / "index.html").exists()


def test_an_adjustment_holds_when_scored_again_and_diff_says_why(out, tmp_path_factory):
    old = tmp_path_factory.mktemp("before") / "results"
    shutil.copytree(out, old)
    invoke("adjust", "ada", "softmax", "+0.5", "--because", "agreed", "--out", out)
    now = row(out)
    assert "No grade changed" in invoke("rescore", "--out", out).output
    assert row(out) == now
    said = " ".join(invoke("rescore", "--against", old, "--out", out).output.replace("│", " ").split())
    assert "softmax: +0.5 points by staff: agreed" in said
    assert "other weights" not in said
    invoke("rescore", "--against", out, "--out", old)
    (changed,) = rows_of(old / "changes.csv")
    assert changed["why"].startswith("no more softmax: +0.5 points by staff: agreed; softmax ")


@pytest.mark.parametrize("said", ["1234", "01234", "lovelaceada_1234_1_hw", "Lovelace", "lovelaceada", "LACEADA hw"])
def test_a_student_is_found_by_what_is_known_of_the_student(out, said):
    gradebook_with(out, lovelaceada_1234_1_hw=1.0).close()
    assert "lovelaceada_1234_1_hw: " in succeed("adjust", said, "softmax", "+0.2", "--because", "x", "--out", out)
    assert row(out, "1234")["notes"].startswith("softmax: +0.2 points by staff: x; ")


def test_names_are_those_of_the_roster(out):
    (out / "roster.csv").write_text('Student,ID,Attention\n"Lovelace, Ada",0ada,\n"Lovelace, Ada",ada,\n')
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        found = grades(gradebook, Course(roster=str(out / "roster.csv"), column="Attention"))
    assert [grade.who for grade in found] == ["Lovelace, Ada ada", "alan"]
    assert find_grade(found, "Ada Lovelace").id == find_grade(found, "lovelace").id == "ada"


def test_a_comment_is_read_and_changes_no_points(out):
    before = row(out)
    succeed("adjust", "ada", "--because", "Nice einsum.", "--out", out)
    assert row(out) == before | {"notes": f"From staff: Nice einsum.; {before['notes']}"}
    assert "From staff: Nice einsum." in (out / "ada" / "feedback.md").read_text()
    assert "From staff: Nice einsum." in json.loads((out / "ada" / "results.json").read_text())["output"]
    succeed("rescore", "--out", out)
    assert "From staff: Nice einsum." in row(out)["notes"]


def test_who_lost_points_on_a_test_and_why(out):
    printed = " ".join(invoke("who", "test_softmax", "--out", out).output.replace("│", " ").split())
    assert "1 ada (" in printed
    assert "alan" not in printed
    assert invoke("who", "test_softmax[0]", "--out", out).output == "Nobody lost a point on it\n"


def test_of_a_change_for_everybody_there_is_one_line_and_a_row_for_each_student(out, monkeypatch):
    gradebook_with(out, **{f"student{number}_{number}_1_hw": 3.0 for number in range(30)}).close()
    invoke("rescore", "--out", out)
    monkeypatch.setattr(gradebooks, "load_graded_problems", lambda root: {"softmax": SOFTMAX})
    printed = invoke("rescore", "--out", out).output
    assert printed.count("other weights") == 1
    assert "For all of them: other weights" in printed
    assert printed.count("│") // 5 == 20
    changes = rows_of(out / "changes.csv")
    assert (len(changes), changes[0]["student"]) == (32, "student0 0")
    assert f"All 32 are in {out / 'changes.csv'}" in "".join(printed.splitlines())


def test_of_several_attempts_the_one_that_counts_is_adjusted(out):
    gradebook_with(out, graded("ada", 3.0, "b" * 64)).close()
    succeed("adjust", "ada", "softmax", "-0.1", "--because", "x", "--out", out)
    assert f'work = "{"b" * 12}"\n' in (out / "decisions.toml").read_text()


def test_an_adjustment_never_leaves_the_range_of_the_problem(out):
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        grading = gradebook.of("ada")
        assert grading
        earned, maximum = grading.earned("softmax"), grading.compute_maximum("softmax")
    has = f"by the tests ada has {earned:.2f} of {maximum:g} points in softmax"
    expected = f"{has}: expected {-earned:+.2f} to {maximum - earned:+.2f}, got"
    for points in ("+2.9", "-1.1", "+inf", "nan"):
        finished = invoke("adjust", "ada", "softmax", points, "--because", "x", "--out", out)
        assert finished.exit_code == 1
        assert f"{expected} {float(points):+g}" in finished.output
    most = f"{maximum - earned:+.2f}"  # as it was printed
    succeed("adjust", "ada", "softmax", most, "--because", "x", "--out", out)
    assert float(row(out)["softmax"]) == pytest.approx(maximum, abs=0.01)
    # Then a test turns out to be wrong, and all cases pass.
    with gradebook_with(out, ada=3.0) as gradebook:
        grading = gradebook.of("ada")
        assert grading
        assert grading.points == grading.compute_points("softmax") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("adjust nobody softmax 1 --because x", NOBODY.format("nobody")),
        ("adjust da softmax 1 --because x", "da may be 2 students: lovelaceada 1234: lovelaceada_1234_1_hw, ada: ada"),
        ("adjust 123 softmax 1 --because x", NOBODY.format("123")),
        ("who test_sofmax", "no test is called test_sofmax; results.json has the names"),
        ("adjust ada softmacs 1 --because x", "expected a problem of softmax, "),
        ("adjust nobody --waive --because x", NOBODY.format("nobody")),
        ("adjust ada --waive --because x", NO_VIOLATION),
        ("adjust kurt rope --waive --because x", "kurt has a violation of the rules in softmax, expected one in rope"),
        ("adjust ada --because ' '", "expected a text for the student, got nothing"),
        ("adjust ada softmax --because x", "expected points for softmax, such as +0.5, or else --waive"),
        ("adjust ada softmax 1 --waive --because x", "expected points for softmax, such as +0.5, or else --waive"),
    ],
)
def test_what_cannot_be_decided_gets_a_line(out, arguments, message):
    forbidden = Notes(forbidden={"softmax": {"softmax": ("torch.softmax in adapters.py:1",)}})
    gradebook_with(out, replace(graded("kurt", 1.0), notes=forbidden), lovelaceada_1234_1_hw=1.0).close()
    finished = invoke(*shlex.split(arguments), "--out", out)
    assert finished.exit_code != 0
    assert message in finished.output
    assert not (out / "decisions.toml").exists()


def test_a_lost_gradebook_takes_nobody_away_and_no_decision(tmp_path):
    students = hand_in(tmp_path, *(f"student{number}_{number}_{number}_hw" for number in range(12)))
    results = tmp_path / "results"
    grade_in_batch(tmp_path, *students).close()
    succeed("adjust", "student3", "softmax", "+0.5", "--because", "agreed", "--out", results)
    succeed("adjust", "student5", "--because", "Nice einsum.", "--out", results)
    before = rows(results / "grades.csv")
    for lost in (Path.unlink, lambda path: path.write_bytes(b"")):
        lost(results / "gradebook.sqlite")
        said = f"{results} has results and no gradebook.sqlite: take it from a backup; without one, move everything "
        with pytest.raises(GradebookError, match=f"{said}but decisions.toml out of .* and grade everybody again"):
            grade_in_batch(tmp_path, *students[:2])
        assert rows(results / "grades.csv") == before
    (tmp_path / "results").rename(tmp_path / "old")
    results.mkdir()
    (tmp_path / "old" / "decisions.toml").rename(results / "decisions.toml")
    grade_in_batch(tmp_path, *students).close()
    succeed("rescore", "--out", results)
    assert rows(results / "grades.csv") == before


@pytest.mark.parametrize("problem", [[], {}, 7])
def test_a_finding_that_is_none_stops_no_command(out, problem):
    notes = Notes(explanations=(Finding(problem, "softmax-x", ("made up",)),))
    gradebook_with(out, replace(graded("eve", 1.0), notes=notes)).close()
    for words in ("rescore --out", "report", "adjust eve --because x --out"):
        succeed(*words.split(), out)
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        eve = gradebook.of("eve")
    assert eve
    assert (eve.points > 0, eve.notes.explanations) == (True, ())


@pytest.mark.parametrize("column", ["notes", "texts", "tests", "handed_in"])
@pytest.mark.parametrize("damage", ["substr({}, 1, length({}) - 3)", "'7'"], ids=["cut", "number"])
def test_a_damaged_row_is_named_and_replaced_when_it_is_graded_again(tmp_path, column, damage):
    paths = hand_in(tmp_path, "ada", "eve")
    grade_in_batch(tmp_path, *paths).close()
    results = tmp_path / "results"
    succeed("rescore", "--out", results)
    before = (results / "grades.csv").read_text()
    change = f"{column} = {damage.format(column, column)}"
    with sqlite3.connect(results / "gradebook.sqlite") as connection:
        connection.execute(f"UPDATE attempt SET {change} WHERE submission = 'eve.py'")  # noqa: S608
    commands = [("rescore", "--out"), ("report",), ("adjust", "ada", "--because", "x", "--out")]
    for arguments in commands[: 2 if column == "texts" else 3]:  # of others, a comment reads no texts
        finished = invoke(*arguments, results)
        assert (finished.exit_code, finished.output.count("\n")) == (1, 1)
        assert "gradebook.sqlite: what is recorded of eve.py cannot be read (" in finished.output
        assert f"); grade {paths[1]} again, or take the gradebook from a backup" in finished.output
    assert (results / "grades.csv").read_text() == before
    grade_in_batch(tmp_path, *paths).close()
    succeed("rescore", "--out", results)
    assert (results / "grades.csv").read_text() == before


def test_a_report_that_cannot_be_written_is_missing_alone(tmp_path, monkeypatch):
    paths = hand_in(tmp_path, "ada", "eve", "kurt")

    def fail(report):
        if report.grading.submission == "eve.py":
            raise TypeError("unhashable type: 'list'")
        return "right"

    monkeypatch.setattr(reports, "feedback", fail)
    grade_in_batch(tmp_path, *paths, unreported={"eve.py": "TypeError: unhashable type: 'list'"}).close()
    results = tmp_path / "results"
    said = " ".join(succeed("rescore", "--out", results).split())
    why = "not because of the submission: eve.py: TypeError: unhashable type: 'list'"
    assert f"No report could be written, and {why}" in said
    assert {path.parent.name for path in results.glob("*/feedback.md")} == {"ada.py", "kurt.py"}
    assert rows(results / "grades.csv").keys() == {"ada", "eve", "kurt"}


def test_three_people_decide_beside_a_running_grade_and_nothing_is_lost(tmp_path):
    names, results = ("ada", "alan", "kurt"), tmp_path / "results"
    paths = hand_in(tmp_path, *names, *(f"student{number}" for number in range(9)))
    grade_in_batch(tmp_path, *paths).close()
    fork = multiprocessing.get_context("fork")
    decided = fork.Event()

    def grade_on() -> None:
        while not decided.is_set():
            grade_in_batch(tmp_path, *paths, rerun=True, jobs=2).close()

    def decide(name: str) -> None:
        for number in range(10):
            succeed("adjust", name, "--because", f"{name} reads {number}.", "--out", results)
        succeed("rescore", "--out", results)

    grading = fork.Process(target=grade_on)
    people = [fork.Process(target=decide, args=(name,)) for name in names]
    for process in (grading, *people):
        process.start()
    for process in people:
        process.join()
    decided.set()
    grading.join()
    assert [process.exitcode for process in (grading, *people)] == [0] * 4
    said = [f"{name} reads {number}." for name in names for number in range(10)]
    assert sorted(re.findall(r'^text = "(.*)"$', (results / "decisions.toml").read_text(), re.MULTILINE)) == said
    for name in names:
        read = (results / f"{name}.py" / "feedback.md").read_text() + row(results, name)["notes"]
        assert [read.count(each) for each in said if each.startswith(name)] == [2] * 10
    assert not [path for path in results.rglob(".*") if path.name not in (".lock", ".writing")]


def test_a_second_batch_into_the_same_results_is_refused(tmp_path):
    paths = hand_in(tmp_path, "ada")
    fork = multiprocessing.get_context("fork")
    started, ended = fork.Event(), fork.Event()

    def hold_on(progress: object) -> None:
        started.set()
        ended.wait()

    first = fork.Process(target=lambda: grade_in_batch(tmp_path, *paths, show=hold_on).close())
    first.start()
    started.wait()
    with pytest.raises(CourseworkError, match=r"another batch is writing to .*; wait for it, or choose another --out"):
        grade_in_batch(tmp_path, *paths)
    ended.set()
    first.join()
    assert first.exitcode == 0

"""A semester, tried whole: submissions, late work, a wrong weight.

The commands of running-a-course.md grade a simulated class in a copy of this tree. After each step every grade is what
`simulated_class.py` says that it should be.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import copy_tree, leave_out, rows_of, write_files
from staff.tests.grading.conftest import run_staff
from staff.tests.semester.simulated_class import AGAIN, EXTENDED, GROUP, KEPT, LATE, MAILED, Student, make_class
from whichline.engine.assignment import load_problems
from whichline_grader.release.handout import make_handout

COURSE = """\
due = 2026-10-01T23:59:00Z
attempt = "best"
roster = "roster.csv"
times = "times.csv"
column = "Attention"
[late]
free_days = 1
percent = 10
[extensions]
1002 = 2026-10-05T23:59:00Z
"""
ROSTER = "Student,ID,SIS User ID,SIS Login ID,Section,Attention\n"
TIMED = 4  # the number of a student whom Canvas alone knows to be late
ROUNDING = 0.011  # what mistakes cost has two places


@pytest.mark.nightly
def test_a_semester(tmp_path: Path) -> None:
    course, own = tmp_path / "checkout", tmp_path / "attention-2027"
    results = own / "results"
    copy_tree(course)
    leave_out(course, *(id for id in load_problems(ROOT) if id not in KEPT))
    run_staff(course, "new-course", own)
    group = make_class(write_files(tmp_path / "handout", make_handout(ROOT, "1")), tmp_path / "written")
    for student in group:
        student.hand_in(tmp_path / "week-1")
    everyone = [key for student in group for key in student.keys if student.number != MAILED]
    stated = course / "staff/course.toml"
    stated.write_text("".join(stated.read_text().splitlines(keepends=True)[:2]) + COURSE)
    (own / "roster.csv").write_text(ROSTER + "".join(f"student {key},{key},,,,\n" for key in everyone))
    (own / "times.csv").write_text(f"file_id,submitted_at\n{5000 + TIMED},2026-10-03T12:00:00Z\n")
    group[TIMED - 1] = replace(group[TIMED - 1], penalty=0.1)

    printed = run_staff(course, "grade", *(tmp_path / "week-1").glob("*/*"), "--jobs", "2")
    assert "REHEARSAL" not in printed
    assert f"Reports, gradebook and grades are in {results}" in printed.replace("\n", "")
    assert_grades(group, results)

    # A week later two hand in again: one two days late, of which one is free; the other has an extension.
    for number, penalty in ((GROUP, 0.1), (EXTENDED, 0.0)):
        group[number - 1] = Student(number, AGAIN, penalty)
        group[number - 1].hand_in(tmp_path / "week-2", LATE)
    run_staff(course, "grade", *(tmp_path / "week-2").glob("*/*"))
    assert_grades(group, results)

    # A comment for one, and who lost points on a test.
    run_staff(course, "adjust", f"student {1000 + TIMED}", "--because", "A clear einsum.")
    told = [path for path in results.glob("*/feedback.md") if "From staff: A clear einsum." in path.read_text()]
    assert len(told) == 1
    assert "student 1001" in run_staff(course, "who", "test_hidden_attention")

    run_staff(course, "report")
    assert (results / "index.html").exists()

    # Softmax should have been worth 3 points and not 2: no submission runs again.
    shutil.copytree(results, tmp_path / "before")
    problems = course / "assignment.toml"
    stated = problems.read_text().replace("points = 15", "points = 16")
    problems.write_text(stated.replace("points = 2", "points = 3", 1))
    assert "For all of them: " in run_staff(course, "rescore")
    run_staff(course, "rescore", "--against", tmp_path / "before")
    assert_grades(group, results, softmax=3 / 2)


def assert_grades(group: Sequence[Student], results: Path, softmax: float = 1.0) -> None:
    """Compare each grade with what it should be, when the points of softmax have changed by a factor."""
    read = {row["student"]: row for row in rows_of(results / "grades.csv")}
    grades = {key: float(row["grade"]) for key, row in read.items()}
    canvas = {row["ID"]: float(row["Attention"]) for row in rows_of(results / "canvas.csv")}
    expected = {key: student for student in group for key in student.keys}
    assert grades.keys() == expected.keys()
    assert canvas == {key: grades[key] for key, student in expected.items() if student.number != MAILED}
    for key, student in expected.items():
        told = (results / read[key]["submission"] / "feedback.md").read_text().partition("\n")[0]
        assert f"{grades[key]:.2f}" in told.replace(" / ", " "), f"{key}: {told}"
        work = student.work
        points = (work.points + work.softmax * (softmax - 1)) * (1 - student.penalty)
        least = 0 if work.hostile else points - ROUNDING
        what = f"{key}, {work.what}: expected {points:.2f}, got {grades[key]}"
        assert least <= grades[key] <= points + ROUNDING, what

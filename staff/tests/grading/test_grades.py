"""From what was handed in to grades: names, attempts, groups, late days, and the csv that Canvas imports."""

import csv
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from staff.tests.files import rows_of, write_files
from staff.tests.grading.test_gradebook import GRADING
from whichline.engine.assignment import Problem
from whichline.engine.result import Outcome, Result
from whichline.engine.suite import Calls, Suite, Test
from whichline_grader.grading import batch, identity
from whichline_grader.grading.course import Course, Late, read_groups, read_roster, read_times
from whichline_grader.grading.final_grades import Grade, grades, write_canvas, write_grades
from whichline_grader.grading.gradebook import Gradebook, Results
from whichline_grader.grading.graded import Grading, Notes
from whichline_grader.grading.identity import METADATA, HandedIn, RosterError, Student, Upload, handed_in
from whichline_grader.grading.processes import Forks, Record
from whichline_grader.grading.reports import write_course
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.hidden.release import Release
from whichline_grader.sandbox.files import MAX_PATH
from whichline_grader.sandbox.submission import Submission

SOFTMAX = Problem("softmax", "Softmax", 3.0, (), {"test_softmax": 1.0}, ())
NONE: Any = None  # what a batch does not need when nothing is run
NOTES, COURSE = Notes(), Course()
ADA, ATTEMPT = Student("1234", "lovelaceada"), "ada_attempt_2026-10-01-23-58-01"
DUE = datetime(2026, 10, 1, 23, 59, tzinfo=UTC)

GRADESCOPE = """\
---
submission_11:
  :submitters:
  - :name: Ada Lovelace
    :sid: '007'
    :email: ada@example.edu
  - :name: Alan Turing
    :sid: '008'
    :email: alan@example.edu
  :created_at: 2026-10-03 00:58:43.512990000 Z
  :history:
  - :id: 9
"""

ROSTER = """\
Student,ID,SIS User ID,SIS Login ID,Section,Attention (55),Final Score
    Points Possible,,,,,10,(read only)
"Lovelace, Ada",1234,s1,ada,01,,
"Turing, Alan",1235,s2,alan,01,3,
"""
FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
BEGINNINGS = (" =", "\t=", "\r=", "\n=", "\u00a0@", "a;=", 'a;"=', "a; @", "a\t=", "a\n=")
TIMES = "file_id,submitted_at\n9,2026-10-04T09:00:00Z\n"


def results(points: float) -> list[Result]:
    """Six cases of half a point each."""
    passed = [Outcome.PASSED if half < 2 * points else Outcome.FAILED for half in range(6)]
    return [Result(f"test_softmax[{half}]", "softmax", False, False, 0.5, passed[half]) for half in range(6)]


def graded(name: str, points: float, content: str = "", at: datetime | None = None) -> Grading:
    """A grading of /in/NAME, which is a zip archive if the name does not say."""
    path = Path("/in", name if "." in name else f"{name}.zip")
    (upload,) = identity.find_uploads([path])
    handed = replace(handed_in(path, name, upload.platform), at=at)
    named = replace(GRADING, submission=name.removesuffix(".zip"), path=str(path), content=content or GRADING.content)
    return replace(named, handed_in=handed, results=results(points), notes=Notes())


def gradebook_with(folder: Path, *gradings: Grading, **points: float) -> Gradebook:
    """These gradings, and one for each file name with these points of 3."""
    gradebook = Gradebook(folder / "gradebook.sqlite")
    gradebook.score_with({"softmax": SOFTMAX})
    for grading in (*gradings, *(graded(name, earned) for name, earned in points.items())):
        gradebook.add(grading)
    return gradebook


def write_all(folder: Path, course: Course, *gradings: Grading, **points: float) -> list[Grade]:
    """Write all that staff and students get of these."""
    with gradebook_with(folder, *gradings, **points) as gradebook:
        return write_course(Console(), Results(folder, gradebook, course, {"softmax": SOFTMAX}))[0]


def rows(path: Path) -> dict[str, dict[str, str]]:
    return {row["student"]: row for row in rows_of(path)}


@pytest.mark.parametrize(
    ("name", "platform", "student", "more"),
    [
        ("lovelaceada_LATE_1234_9_my_home-work-2.zip", "canvas", ADA, {"order": 9, "late": True}),
        ("lovelaceada_1234_99887_hw.zip", "canvas", ADA, {"order": 99887}),
        ("Ada Lovelace_4711_assignsubmission_file_", "moodle", Student("4711", "Ada Lovelace"), {}),
        ("Ada Lovelace_4711_assignsubmission_file_home_work.zip", "moodle", Student("4711", "Ada Lovelace"), {}),
        (f"Homework 1_{ATTEMPT}_home_work.zip", "blackboard", Student("ada", "ada"), {"order": 20261001235801}),
        ("\x1b[2Ja\n_1234_1_hw.zip", "canvas", Student("1234", "\N{REPLACEMENT CHARACTER}[2Ja"), {"order": 1}),
    ],
)
def test_the_name_of_a_file_gives_the_student(name, platform, student, more):
    path = Path("/in", name)
    assert identity.find_uploads([path]) == [Upload(path, platform)]
    assert handed_in(path, "x-0123456789ab", platform) == HandedIn((student,), **more)


@pytest.mark.parametrize("platform", ["canvas", "moodle", "none"])
@pytest.mark.parametrize(
    ("name", "shown"), [("ada.zip", "ada"), ("b/j.smith", "j.smith"), ("\x1b[2Ja.zip", "\N{REPLACEMENT CHARACTER}[2Ja")]
)
def test_any_other_name_is_the_student(name, shown, platform):
    (student,) = handed_in(Path("/in", name), "x-0123456789ab", platform).students
    assert student == Student("x-0123456789ab", shown)


def test_days_late_are_counted_from_the_students_own_deadline():
    course = Course(due=DUE, extensions={"007": DUE + timedelta(days=1)}, late=Late(free_days=1, percent=60))
    handed = HandedIn((), at=DUE + timedelta(days=1, hours=1))
    assert [course.days_late(student, handed) for student in ("008", "007")] == [2, 1]
    assert course.days_late("008", HandedIn(())) is None
    assert Course().days_late("008", handed) is None
    assert [course.penalty(days) for days in (None, 1, 2, 3, 9)] == [0, 0, 0.6, 1, 1]


@pytest.mark.parametrize(("take", "counts"), [("last", 1), ("best", 0)])
@pytest.mark.parametrize(
    "names",
    [
        ("amy_1234_567_assignment-1.py", "amy_1234_577_submission.py"),
        ("amy_1234_9_hw-2.zip", "amy_LATE_1234_10_hw-1.zip"),  # numbers, and not texts
        ("HW_amy_attempt_2026-10-01-23-58-01_b.py", "HW_amy_attempt_2026-10-02-00-01-00_a.py"),
    ],
)
def test_what_the_platform_wrote_orders_attempts_and_what_the_student_chose_does_not(tmp_path, names, take, counts):
    made = [graded(name, points) for name, points in zip(names, (2.0, 1.0), strict=True)]
    for order in (made, made[::-1]):
        folder = tmp_path / order[0].submission
        folder.mkdir()
        (grade,) = write_all(folder, Course(attempt=take), *order)
        assert grade.grading.path == f"/in/{names[counts]}"
        (row,) = rows(folder / "grades.csv").values()
        assert (row["attempt"], row["attempts"]) == (str(1 + counts), "2")
        assert "the last is not known" not in row["notes"]


@pytest.mark.parametrize(("take", "points"), [("last", 1.0), ("best", 3.0)])
def test_a_better_attempt_is_remembered_once_worse_work_lies_in_its_place(tmp_path, take, points):
    (grade,) = write_all(tmp_path, Course(attempt=take), graded("ada", 3.0, "a" * 64), graded("ada", 1.0, "b" * 64))
    assert (grade.points, grade.attempts) == (points, 2)
    assert (tmp_path / "ada" / "feedback.md").read_text().startswith(f"# `ada`: {points:.2f} of 3 points")


@pytest.mark.parametrize(("percent", "points"), [(10, 2.7), (50, 2.0)])
def test_the_best_attempt_is_the_best_after_what_lateness_costs(tmp_path, percent, points):
    late = graded("ada", 3.0, "b" * 64, DUE + timedelta(hours=1))
    course = Course(attempt="best", due=DUE, late=Late(percent=percent))
    (grade,) = write_all(tmp_path, course, graded("ada", 2.0, "a" * 64, DUE), late)
    assert grade.points == pytest.approx(points)
    row = rows(tmp_path / "grades.csv")["ada"]
    assert float(row["grade"]) == pytest.approx(points)
    assert float(row["points"]) - float(row["penalty"]) == pytest.approx(points)


def test_recorded_results_are_scored_with_the_present_weights(tmp_path):
    with gradebook_with(tmp_path, ada=2.0, alan=3.0) as gradebook:
        assert not gradebook.score_with({"softmax": SOFTMAX})
        assert gradebook.score_with({"softmax": replace(SOFTMAX, points=6.0)})
        found = grades(gradebook, Course())
        assert [(grade.points, grade.grading.maximum) for grade in found] == [(4.0, 6.0), (6.0, 6.0)]
        # A test that was added, and has not seen them: the maximum does not shrink.
        gradebook.score_with({"softmax": replace(SOFTMAX, points=6.0, tests={"test_softmax": 2.0, "test_new": 1.0})})
        found = grades(gradebook, Course())
        assert [(grade.points, grade.grading.maximum) for grade in found] == [(pytest.approx(8 / 3), 6.0), (4.0, 6.0)]
        write_grades(tmp_path / "grades.csv", found, ["softmax"])
        assert rows(tmp_path / "grades.csv")["ada"]["notes"] == "1 tests not run"
        gradebook.score_with({})  # the problem is left out
        assert [grade.grading.maximum for grade in grades(gradebook, Course())] == [0, 0]


class InstantForks(Forks):
    """In the place of forks: each submission has ended at once, with the next of these records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records, self._begun = iter(records), list[str]()

    def start(self, name: str, submission: Submission, transcript: bytes) -> None:
        assert all(len(path) <= MAX_PATH for path in submission.files)
        self._begun.append(name)

    def wait(self, seconds: float) -> Iterator[tuple[str, Record]]:
        while self._begun:
            yield self._begun.pop(0), next(self._records)

    def close(self) -> None: ...


def grade_in_batch(
    folder: Path, *paths: Path, notes: Notes = NOTES, course: Course = COURSE, unreported: Mapping = {}, **stated: Any
) -> Gradebook:
    """Grade them in a batch where whatever is run passes, with these notes; its gradebook."""
    test = Test("test_softmax", print, ("test.py", 1), problem="softmax", points=3.0)
    tests = Suite(folder, {"softmax": SOFTMAX}, [test], Calls(), remote=True)
    record = Record([Result("test_softmax", "softmax", False, False, 3.0, Outcome.PASSED)], notes)
    suite = GradedSuite(tests, NONE, {}, Release(b"", folder), course)
    done = batch.grade_by(InstantForks(repeat(record)), suite, paths, folder / "results", batch.How(**stated))
    assert (done.faults, done.unreported) == ({}, unreported)
    return Gradebook(folder / "results" / "gradebook.sqlite", course.muted)


def batch_of(folder: Path, *paths: Path) -> list[Grade]:
    with grade_in_batch(folder, *paths) as gradebook:
        return grades(gradebook, Course(due=DUE))


def test_a_batch_writes_the_grades_as_far_as_it_got(tmp_path):
    names = [f"student{number}_{number}_1_hw" for number in range(30)]
    for name in names:
        (tmp_path / name).mkdir()
    seen = []

    def look(progress):
        path = tmp_path / "results" / "grades.csv"
        seen.append((progress.done, len(rows(path)) if path.exists() else 0))

    grade_in_batch(tmp_path, *(tmp_path / name for name in names), show=look).close()
    assert seen[-1] == (30, 30)
    assert all(done - 3 < written <= done for done, written in seen)


def test_a_copy_without_metadata_is_still_its_students(tmp_path):
    """Regrading one student from a copy of the folder loses nobody, and no late day."""
    for folder in ("export", "copy", "second"):
        (tmp_path / folder / "submission_11").mkdir(parents=True)
    (tmp_path / "export" / METADATA).write_text(GRADESCOPE)
    paths = [tmp_path / "export" / "submission_11", tmp_path / "export" / "submission_12"]
    paths[1].mkdir()
    for graded_now in (paths, [tmp_path / "copy" / "submission_11"]):
        found = {grade.student.key: grade.days_late for grade in batch_of(tmp_path, *graded_now)}
        assert found == {"007": 2, "008": 2, "submission_12": None}
    (tmp_path / "second" / "submission_11" / "other.txt").touch()
    after = batch_of(tmp_path, tmp_path / "second" / "submission_11")
    found = [(grade.student.key, grade.days_late, grade.attempts) for grade in after]
    assert found[:2] == [("007", None, 2), ("008", None, 2)]


def test_a_student_of_two_downloads_is_one(tmp_path):
    write_files(tmp_path, {f"{week}/ada/notes-{week}.txt": "" for week in ("1", "2")})
    (tmp_path / "1" / "kurt").mkdir()
    _, kurt = batch_of(tmp_path, tmp_path / "1" / "ada", tmp_path / "1" / "kurt")
    for week in ("2", "1"):
        grade, same = batch_of(tmp_path, tmp_path / week / "ada")
        assert same == kurt
        assert len(list((tmp_path / "results").glob("*/results.json"))) == 2
    assert (grade.student.key, grade.attempts) == ("ada", 2)
    with Gradebook(tmp_path / "results" / "gradebook.sqlite") as gradebook:
        write_grades(tmp_path / "grades.csv", grades(gradebook, Course()), ["softmax"])
        assert rows(tmp_path / "grades.csv")["ada"]["notes"].startswith("not run: ")
        assert [each.path for each in gradebook.latest()] == [str(tmp_path / "1" / name) for name in ("ada", "kurt")]


def test_everybody_in_a_group_gets_the_grade(tmp_path):
    groups = "Ada,1234,,,,A\nAlan,1235,,,,A\nKurt,1236,,,,\n"
    (tmp_path / "groups.csv").write_text(f"name,canvas_user_id,user_id,login_id,sections,group_name\n{groups}")
    with gradebook_with(tmp_path, lovelaceada_1234_1_hw=2.0) as gradebook:
        found = grades(gradebook, Course(groups=str(tmp_path / "groups.csv")))
    assert [(grade.student.name, grade.points) for grade in found] == [("Ada", 2.0), ("Alan", 2.0)]


def test_the_metadata_of_gradescope_gives_students_and_time_and_grades_csv_has_late_days(tmp_path):
    (tmp_path / METADATA).write_text(GRADESCOPE)
    handed = handed_in(tmp_path / "submission_11", "submission_11", "gradescope")
    assert handed.students[0] == Student("007", "Ada Lovelace", "ada@example.edu")
    assert handed.at == datetime(2026, 10, 3, 0, 58, 43, 512990, UTC)
    write_all(tmp_path, Course(due=DUE), replace(graded("submission_11", 2.0), handed_in=handed))
    ada, alan = rows(tmp_path / "grades.csv").values()
    assert (ada["student"], ada["late"], ada["days_late"], ada["group"]) == ("007", "yes", "2", "007;008")
    assert (alan["student"], alan["softmax"], alan["points"], alan["maximum"]) == ("008", "2", "2", "3")


def test_a_student_reads_the_grade_that_is_left_after_lateness(tmp_path):
    (tmp_path / "times.csv").write_text(TIMES)
    course = Course(due=DUE, late=Late(free_days=1, percent=10), times=str(tmp_path / "times.csv"))
    write_all(tmp_path, course, lovelaceada_LATE_1234_9_hw=2.0, turingalan_LATE_1235_1_hw=2.0)
    row, unknown = rows(tmp_path / "grades.csv").values()
    assert (row["days_late"], row["points"], row["penalty"], row["grade"]) == ("3", "2", "0.4", "1.6")
    assert (unknown["late"], unknown["days_late"], unknown["grade"]) == ("yes", "", "2")
    assert unknown["notes"] == "late, by how much is not known: no penalty"
    ada, alan = tmp_path / "lovelaceada_LATE_1234_9_hw", tmp_path / "turingalan_LATE_1235_1_hw"
    assert (ada / "feedback.md").read_text().startswith("# `lovelaceada_LATE_1234_9_hw`: 1.60 of 3 points\n")
    assert [line for line in (ada / "feedback.md").read_text().splitlines() if "| **" in line] == [
        "| **Points** | **2.00 / 3** | |",
        "| **Lateness: 3 days, 1 free, 10 % of the points for each other day** | **-0.40** | |",
        "| **Grade** | **1.60 / 3** | |",
    ]
    report = json.loads((ada / "results.json").read_text())
    assert report["score"] == 1.6
    lateness = "Lateness: 3 days, 1 free, 10 % of the points for each other day"
    assert report["output"].startswith(f"{lateness}: -0.40\nGrade: 1.60 / 3")
    assert report["extra_data"]["points"] == 2
    (told,) = report["extra_data"]["grades"]
    assert told == {"student": "1234", "days_late": 3, "penalty": pytest.approx(0.4), "grade": pytest.approx(1.6)}
    late = "| **Lateness: handed in late, by how much is not known** | **0.00** | |"
    assert late in (alan / "feedback.md").read_text()
    with zipfile.ZipFile(tmp_path / "feedback.zip") as archive:
        names = ["lovelaceada_LATE_1234_9_feedback.md", "turingalan_LATE_1235_1_feedback.md"]
        assert (archive.namelist(), archive.read(names[0])) == (names, (ada / "feedback.md").read_bytes())


def test_members_of_a_group_read_their_own_grades(tmp_path):
    ada, alan = Student("007", "Ada <b>"), Student("0008", "Alan")
    handed = HandedIn((ada, alan), at=DUE + timedelta(hours=1))
    course = Course(due=DUE, extensions={"8": DUE + timedelta(days=1)}, late=Late(percent=50))
    write_all(tmp_path, course, replace(graded("both", 2.0), handed_in=handed))
    text = (tmp_path / "both" / "feedback.md").read_text()
    assert text.startswith("# `both`: 1.00 / 2.00 of 3 points\n")
    assert [line for line in text.splitlines() if "| **" in line][1:] == [
        "| **Grade of Alan** | **2.00 / 3** | |",
        "| **Lateness of Ada  b : 1 day, 50 % of the points for each day** | **-1.00** | |",
        "| **Grade of Ada  b ** | **1.00 / 3** | |",
    ]


@pytest.mark.parametrize(
    ("first", "second", "points"),
    [
        ("mallory_1234_567_hw-99.py", "mallory_LATE_1234_577_hw.py", (0.0, 3.0)),
        ("mallory_1234_567_hw.py", "mallory_LATE_1234_577_hw-1.py", (0.0, 3.0)),  # the honest twin
        ("mallory_LATE_1234_577_hw.py", "mallory_LATE_1234_587_nothing.py", (3.0, 0.0)),
    ],
)
def test_a_late_penalty_is_that_of_the_file_whatever_it_is_called(tmp_path, first, second, points):
    times = "567,2026-10-01T09:00:00Z\n577,2026-10-06T09:00:00Z\n587,2026-10-07T09:00:00Z\n"
    (tmp_path / "times.csv").write_text(f"file_id,submitted_at\n{times}")
    course = Course(attempt="best", due=DUE, late=Late(percent=10), times=str(tmp_path / "times.csv"))
    (grade,) = write_all(tmp_path, course, graded(first, points[0]), graded(second, points[1]))
    assert (grade.points, grade.days_late) == (1.5, 5)


def test_feedback_on_an_attempt_that_does_not_count_says_so(tmp_path):
    (tmp_path / "times.csv").write_text(TIMES)
    course = Course(attempt="best", due=DUE, late=Late(percent=50), times=str(tmp_path / "times.csv"))
    (grade,) = write_all(tmp_path, course, **{"lovelaceada_1234_1_hw": 2.0, "lovelaceada_LATE_1234_9_hw-1": 3.0})
    assert (grade.grading.submission, grade.points, grade.attempts) == ("lovelaceada_1234_1_hw", 2, 2)
    assert (tmp_path / "lovelaceada_1234_1_hw" / "feedback.md").read_text().count("did not count") == 0
    other = (tmp_path / "lovelaceada_LATE_1234_9_hw-1" / "feedback.md").read_text()
    assert "| **Grade, if lovelaceada_1234_1_hw did not count** | **0.00 / 3** | |" in other


def test_where_the_order_of_attempts_is_not_known_staff_are_asked(tmp_path, capsys):
    name = "Amy Ames_7_assignsubmission_file_hw.py"
    made = [graded(name, points, content * 64) for points, content in ((2.0, "a"), (1.0, "b"))]
    (grade,) = write_all(tmp_path, Course(), *made)
    assert grade.points == 1
    said = "".join(capsys.readouterr().out.split())  # a long path is broken anywhere
    why = "which attempt was the last is not known, the one graded last counts"
    into = tmp_path / "decisions.toml"
    expected = (
        f"W{why[1:]}; write which one does into {into}, below a line [counts]: "
        'Amy Ames 7: "7" = "bbbbbbbbbbbb" (1.00 points) or "7" = "aaaaaaaaaaaa" (2.00 points)'
    )
    assert said == "".join(expected.split())
    (row,) = rows(tmp_path / "grades.csv").values()
    assert row["notes"] == why
    assert write_all(tmp_path, Course(attempt="best"), *made)[0].points == 2
    into.write_text('[counts]\n"7" = "aaaaaaaaaaaa"\n')
    assert write_all(tmp_path, Course(), *made)[0].points == 2
    assert capsys.readouterr().out == ""


def test_an_extension_of_2_is_that_of_0002_if_there_is_no_other(tmp_path, capsys):
    course = Course(due=DUE, extensions={"2": DUE + timedelta(days=9)}, late=Late(percent=10))
    at = DUE + timedelta(days=1)
    for others, late in (((), 0), (("02",), 1), (("2",), 1)):
        folder = tmp_path / f"class{len(others)}{''.join(others)}"
        folder.mkdir()
        made = [replace(graded(key, 3.0), handed_in=HandedIn((Student(key, key),), at=at)) for key in ("0002", *others)]
        assert write_all(folder, course, *made)[0].days_late == late
    assert capsys.readouterr().out == "Has an extension, and no grade: 2\n"


def test_who_decides_on_one_submission_reads_nothing_of_the_others(tmp_path, capsys):
    with gradebook_with(tmp_path, lovelaceada_1_1_hw=3) as gradebook:
        results = Results(tmp_path, gradebook, Course(due=DUE, extensions={"2": DUE}), {"softmax": SOFTMAX})
        write_course(Console(), results, "lovelaceada_1_1_hw")
        assert capsys.readouterr().out == ""
        write_course(Console(), results)
    assert capsys.readouterr().out == "Has an extension, and no grade: 2\n"


@pytest.mark.parametrize(
    ("name", "back"),
    [
        ("lovelaceada_LATE_1234_99_my_home-work-2.zip", "lovelaceada_LATE_1234_99_feedback.md"),
        ("lovelaceada_1234_99_adapters.py", "lovelaceada_1234_99_feedback.md"),
        ("Ada Lovelace_47_assignsubmission_file_hw.zip", "Ada Lovelace_47_assignsubmission_file_feedback.md"),
        ("Ada Lovelace_47_assignsubmission_file", "Ada Lovelace_47_assignsubmission_file_feedback.md"),
        ("HW_ada_attempt_2026-10-01-23-58-01_hw.zip", ""),
        ("ada.zip", ""),
    ],
)
def test_feedback_goes_back_under_the_name_that_canvas_or_moodle_gave(name, back):
    assert identity.name_for_return(Path("/in", name), "feedback.md") == back


@pytest.mark.parametrize("start", [*FORMULAS, *BEGINNINGS])
def test_a_name_is_no_formula_for_a_spreadsheet_whatever_separates_its_cells(tmp_path, start):
    write_all(tmp_path, Course(), replace(graded(f"{start}1+1", 1.0), notes=Notes(taken_in=(f"{start}1+1",))))
    text = (tmp_path / "grades.csv").read_text()
    assert text.count("1+1") == 4  # as student, name, submission and note
    for separator in ",;\t":
        for line in csv.reader(text.splitlines(), delimiter=separator):
            assert not any(cell.lstrip().startswith(FORMULAS) for cell in line)


CLAIMS = {"honestann_111_5_x.py": "honestann_LATE_111_9999_x-50.py", "honestann_111_6_x.py": "111.py"}


@pytest.mark.parametrize("name", CLAIMS)
def test_two_claims_to_one_row_end_a_batch_before_it_begins(tmp_path, name):
    names = ("lovelaceada_1_2_x.py", name, CLAIMS[name])
    write_files(tmp_path, dict.fromkeys(names, ""))
    message = f"two submissions by student 111: .*/{name} and .*/{CLAIMS[name]}; keep the right one, put files of one"
    with pytest.raises(RosterError, match=message):
        batch_of(tmp_path, *(tmp_path / each for each in names))
    assert not list((tmp_path / "results").glob("*/results.json"))


FROM_BLACKBOARD = "HW_dumasdi_attempt_2026-10-01-23-58-01"
LOOSE = {
    "canvas": ("dumasdi_222_7_adapters-1.py", "dumasdi_222_8_functional.py"),
    "moodle": ("Di Dumas_222_assignsubmission_file_adapters.py", "Di Dumas_222_assignsubmission_file_functional.py"),
    "blackboard": (f"{FROM_BLACKBOARD}_adapters.py", f"{FROM_BLACKBOARD}_functional.py"),
}


@pytest.mark.parametrize("platform", LOOSE)
def test_files_that_one_student_handed_in_one_by_one_are_one_submission(platform):
    adapters, functional = (Path("/in", name) for name in LOOSE[platform])
    other = Path("/in/adapters.py")
    both = Upload(adapters, platform, {"adapters.py": adapters, "functional.py": functional})
    assert identity.find_uploads([functional, other, adapters]) == [both, Upload(other, platform)]


def test_what_a_platform_writes_beside_submissions_is_none_but_nobody_is_lost():
    attempt = "HW_ada_attempt_2026-10-01-23-58-01"
    names = [METADATA, f"{attempt}.txt", f"{attempt}_hw.zip", "HW_alan_attempt_2026-10-01-23-58-01.txt", "notes.txt"]
    paths = [Path("/in", name) for name in names]
    assert [work.path for work in identity.find_uploads(paths, "blackboard")] == paths[2:]
    typed, files = Path("/in/A L_5_assignsubmission_onlinetext"), Path("/in/A L_5_assignsubmission_file")
    assert identity.find_uploads([typed, files], "moodle") == [Upload(files, "moodle")]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("李小龙.zip", "李小龙"),
        ("Müller, Zoë.zip", "Müller_Zoë"),
        ("Mu\u0308ller", "Müller"),
        ("राम", "राम"),
        ("محمد.zip", "محمد"),
        ("\u202e\x1b[2J\ud800..", "_2J_.."),
        ("\N{GRINNING FACE}" * 50, "_"),
        ("--.", "submission"),
        ("index.html.zip", "index.html_"),
        ("students", "students_"),
        ("a" * 180, "a" * 180),  # an assignment's long title, and a student behind it
        ("李" * 90, "李" * 30 + "_228ebfb6623d_" + "李" * 30),
    ],
)
def test_the_name_of_a_submission_in_any_script(name, safe):
    assert identity.make_safe_name(name) == safe
    assert len(safe.encode()) <= 200


def for_canvas(folder: Path, roster: str, column: str, **points: float) -> tuple[list[str], list[str], list[str]]:
    """Those of the roster without a grade, strangers with one, and the lines of what Canvas imports."""
    (folder / "roster.csv").write_text(roster)
    with gradebook_with(folder, **points) as gradebook:
        found = grades(gradebook, Course())
    listed = read_roster(folder / "roster.csv")
    without = listed.find_ungraded({grade.student.key for grade in found})
    strangers = write_canvas(folder / "canvas.csv", listed, found, column)
    return without, strangers, (folder / "canvas.csv").read_text().splitlines()


def test_canvas_gets_its_own_rows_back_and_nobody_is_dropped(tmp_path):
    points = {"lovelaceada_1234_1_hw": 2.5, "godelkurt_1236_2_hw": 1.0}
    without, strangers, lines = for_canvas(tmp_path, ROSTER, "Attention (55)", **points)
    assert (without, strangers) == (["Turing, Alan"], ["godelkurt (godelkurt_1236_2_hw)"])
    assert lines == [
        "Student,ID,SIS User ID,SIS Login ID,Section,Attention (55)",
        "    Points Possible,,,,,3",
        '"Lovelace, Ada",1234,s1,ada,01,2.5',
        '"Turing, Alan",1235,s2,alan,01,',
    ]


def test_a_number_of_one_column_is_not_looked_for_in_another(tmp_path):
    students = "Ada,111111,222222\nAlan,222222,333333\nKurt,444444,555555\n"
    roster = f"Student,ID,SIS User ID\n    Points Possible,,\n{students}"
    points = {"turingalan_222222_1_hw": 2.0, "godelkurt_444444_2_hw": 1.0}
    without, strangers, lines = for_canvas(tmp_path, roster, "A", **points)
    assert (without, strangers) == (["Ada"], [])
    assert lines[2:] == ["Ada,111111,222222,", "Alan,222222,333333,2", "Kurt,444444,555555,1"]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_roster, "Student,ID\nMüller,1\n", r"roster.csv is not a CSV file in UTF-8 .*; save it as one"),
        (read_groups, "Student,ID\nMüller,1\n", r"roster.csv is not a CSV file in UTF-8 .*; save it as one"),
        (read_roster, "name,points\n", "has no column Student or ID; export the gradebook from Canvas"),
        (read_roster, "Student,ID\nAda,1\nStudent,ID\nBo,2\n", "roster.csv:3: a second export begins; .* all sections"),
        (read_groups, "group_name,name\nA,Ada\n", "has no column canvas_user_id; export the groups from Canvas"),
        (read_times, "user,at\n", "has no column file_id or submitted_at; write it as .*running-a-course.md says"),
        (read_times, "file_id,submitted_at\n1,\n", "roster.csv:2: submitted_at is '', expected a time with its offset"),
        (read_times, "file_id,submitted_at\n1,2026-10-01T23:59\n", "expected a time with its offset from UTC, such as"),
        (read_times, "file_id,submitted_at\nx,2026-10-01T23:59Z\n", "roster.csv:2: file_id is 'x', expected Canvas's"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(tmp_path, read, text, message):
    (tmp_path / "roster.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(RosterError, match=message):
        read(tmp_path / "roster.csv")


@pytest.mark.parametrize("metadata", ["a: [", "- submission_11", "submission_11: text", b"\xff"])
def test_metadata_that_cannot_be_read_is_refused(tmp_path, metadata):
    (tmp_path / METADATA).write_bytes(metadata if isinstance(metadata, bytes) else metadata.encode())
    with pytest.raises(RosterError, match=r"submission_metadata.yml .*; take it from Gradescope's export again"):
        handed_in(tmp_path / "submission_11", "submission_11", "gradescope")

"""From what was handed in to grades: names, attempts, groups, late days, and the csv that Canvas imports."""

import csv
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cs336_kit.engine.result import Outcome, Result
from cs336_staff.grading import batch
from cs336_staff.grading.exports import RosterError, grades, read_groups, read_roster, write_canvas, write_grades
from cs336_staff.grading.gradebook import Gradebook, Notes
from cs336_staff.grading.identity import METADATA, Student, check_claims, handed_in, together
from cs336_staff.grading.report import safe_name
from cs336_staff.tests.grading.test_gradebook import GRADING

NONE: Any = None  # the suite and the sandbox of a batch that ends before it needs one
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


def gradebook_with(folder: Path, **points: float) -> Gradebook:
    """A grading for each file name with these points of 3."""
    gradebook = Gradebook(folder / "gradebook.sqlite")
    for i, (name, earned) in enumerate(points.items()):
        rows = [
            Result("test_softmax", "softmax", False, False, earned, Outcome.PASSED),
            Result("test_hidden_softmax", "softmax", True, False, 3 - earned, Outcome.FAILED),
        ]
        at = GRADING.started + timedelta(minutes=i)
        gradebook.add(replace(GRADING, submission=name, path=f"/in/{name}.zip", started=at, results=rows))
    return gradebook


def test_a_name_of_canvas_gives_student_attempt_and_lateness():
    handed = handed_in(Path("lovelaceada_LATE_1234_99887_my_home-work-2.zip"), "x")
    assert handed.students == (Student("1234", "lovelaceada"),)
    assert handed.attempt == 2
    assert handed.late
    assert handed_in(Path("lovelaceada_1234_99887_hw.zip"), "x").attempt == 0


def test_any_other_name_is_the_student():
    assert handed_in(Path("ada.zip"), "ada").students == (Student("ada", "ada"),)
    assert handed_in(Path("b/j.smith"), "j.smith-0123456789ab").students == (
        Student("j.smith-0123456789ab", "j.smith"),
    )


def test_the_metadata_of_gradescope_gives_students_and_time(tmp_path):
    (tmp_path / "submission_metadata.yml").write_text(GRADESCOPE)
    handed = handed_in(tmp_path / "submission_11", "submission_11")
    assert handed.students[0] == Student("007", "Ada Lovelace", "ada@example.edu")
    assert handed.attempt == 1
    assert handed.at == datetime(2026, 10, 3, 0, 58, 43, 512990, UTC)
    assert handed.days_late(DUE) == 2  # a day and an hour
    assert handed.days_late(None) is None


@pytest.mark.parametrize(("take", "attempt"), [("latest", 1), ("best", 0)])
def test_of_several_attempts_one_counts(tmp_path, take, attempt):
    names = {"lovelaceada_1234_1_hw": 3.0, "lovelaceada_1234_2_hw-1": 2.0}
    with gradebook_with(tmp_path, **names) as gradebook:
        (grade,) = grades(gradebook, take)
    assert grade.handed.attempt == attempt


def test_everybody_in_a_group_gets_the_grade(tmp_path):
    (tmp_path / "groups.csv").write_text(
        "name,canvas_user_id,user_id,login_id,sections,group_name\nAda,1234,,,,A\nAlan,1235,,,,A\nKurt,1236,,,,\n"
    )
    with gradebook_with(tmp_path, lovelaceada_1234_1_hw=2.0) as gradebook:
        found = grades(gradebook, groups=read_groups(tmp_path / "groups.csv"))
    assert [(grade.student.name, grade.grading.points) for grade in found] == [("Ada", 2.0), ("Alan", 2.0)]


def test_grades_csv_has_late_days_where_the_time_is_known(tmp_path):
    (tmp_path / "submission_metadata.yml").write_text(GRADESCOPE)
    grading = replace(GRADING, path=str(tmp_path / "submission_11"))
    with Gradebook(tmp_path / "gradebook.sqlite") as gradebook:
        gradebook.add(grading)
        write_grades(tmp_path / "grades.csv", grades(gradebook), ["softmax"], DUE)
    with (tmp_path / "grades.csv").open(newline="") as file:
        ada, alan = csv.DictReader(file)
    assert (ada["student"], ada["late"], ada["days_late"], ada["group"]) == ("007", "yes", "2", "007;008")
    assert (alan["student"], alan["softmax"], alan["points"], alan["maximum"]) == ("008", "2", "2", "3")


@pytest.mark.parametrize("start", ["=", " =", "\t=", "\r=", "\n=", "\u00a0@", "＝", "＋", "－", "＠", "+", "-", "@"])
def test_a_name_is_no_formula_for_a_spreadsheet(tmp_path, start):
    grading = replace(GRADING, notes=Notes(taken_in=(f"{start}HYPERLINK(1)",)), path=f"/in/{start}HYPERLINK(1).zip")
    with gradebook_with(tmp_path) as gradebook:
        gradebook.add(grading)
        write_grades(tmp_path / "grades.csv", grades(gradebook), ["softmax"])
    with (tmp_path / "grades.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    for cell in (row["name"], row["notes"]):
        assert cell.endswith("HYPERLINK(1)")
        assert cell[0] in "'\N{REPLACEMENT CHARACTER}"


def test_a_name_commands_no_terminal(tmp_path):
    for name in ("\x1b[2Ja.zip", "\x1b[2Ja\n_1234_1_hw.zip"):
        (student,) = handed_in(Path(name), "x").students
        assert student.name == "\N{REPLACEMENT CHARACTER}[2Ja"


CLAIMS = {
    "honestann_111_5_x.py": "honestann_111_9999_x-50.py",
    "honestann_111_6_x.py": "111.py",
    "dumasdi_222_7_adapters.py": "dumasdi_222_8_functional.zip",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_two_claims_to_one_row_are_an_error(name):
    paths = {each.removesuffix(".py"): Path("/in", each) for each in ("lovelaceada_1_2_x.py", name, CLAIMS[name])}
    message = f"two submissions by student .*: /in/{name} and /in/{CLAIMS[name]}; keep the right one, put files of one"
    with pytest.raises(RosterError, match=message):
        check_claims(paths)
    check_claims(dict(list(paths.items())[:2]))


def test_two_claims_end_a_batch_before_it_begins(tmp_path):
    for name in ("honestann_111_5_x.py", "honestann_111_9999_x-50.py"):
        (tmp_path / name).touch()
    with pytest.raises(RosterError, match="two submissions by student 111: "):
        batch.grade(NONE, NONE, sorted(tmp_path.glob("*.py")), tmp_path / "results")


@pytest.mark.parametrize(
    ("name", "student", "attempt"),
    [
        ("Ada Lovelace_4711_assignsubmission_file_", Student("4711", "Ada Lovelace"), 0),
        ("Ada Lovelace_4711_assignsubmission_file_home_work.zip", Student("4711", "Ada Lovelace"), 0),
        ("Homework 1_alovelace_attempt_2026-10-01-23-58-01_home_work.zip", Student("alovelace", "alovelace"), 0),
    ],
)
def test_names_of_moodle_and_blackboard_give_the_student(name, student, attempt):
    assert handed_in(Path("/in", name), "x").students == (student,)


LOOSE = {
    "canvas": ("dumasdi_222_7_adapters-1.py", "dumasdi_222_8_functional.py"),
    "moodle": ("Di Dumas_222_assignsubmission_file_adapters.py", "Di Dumas_222_assignsubmission_file_functional.py"),
    "blackboard": (
        "HW_dumasdi_attempt_2026-10-01-23-58-01_adapters.py",
        "HW_dumasdi_attempt_2026-10-01-23-58-01_functional.py",
    ),
}


@pytest.mark.parametrize("platform", LOOSE)
def test_files_that_one_student_handed_in_one_by_one_are_one_submission(platform):
    adapters, functional = (Path("/in", name) for name in LOOSE[platform])
    other = Path("/in/lovelaceada_1_2_adapters.py")
    assert together([functional, other, adapters]) == {
        adapters: {"adapters.py": adapters, "functional.py": functional},
        other: {},
    }


def test_what_a_platform_writes_beside_submissions_is_none_but_nobody_is_lost():
    attempt = "HW_ada_attempt_2026-10-01-23-58-01"
    typed, files = Path("/in/A L_5_assignsubmission_onlinetext"), Path("/in/A L_5_assignsubmission_file")
    names = [METADATA, f"{attempt}.txt", f"{attempt}_hw.zip", "HW_alan_attempt_2026-10-01-23-58-01.txt", "notes.txt"]
    found = together([*(Path("/in", name) for name in names), typed, files])
    assert list(found) == [*(Path("/in", name) for name in names[2:]), files]
    assert set(map(str, found.values())) == {"{}"}


def test_metadata_is_no_submission(tmp_path):
    assert batch.grade(NONE, NONE, [tmp_path / METADATA], tmp_path / "results").total == 0


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
        ("李" * 90, "李" * 66),
    ],
)
def test_the_name_of_a_submission_in_any_script(name, safe):
    assert safe_name(name) == safe
    assert len(safe.encode()) <= 200


def test_canvas_gets_its_own_rows_back_and_nobody_is_dropped(tmp_path):
    (tmp_path / "roster.csv").write_text(ROSTER)
    with gradebook_with(tmp_path, lovelaceada_1234_1_hw=2.5, godelkurt_1236_2_hw=1.0) as gradebook:
        without, strangers = write_canvas(
            tmp_path / "canvas.csv", tmp_path / "roster.csv", grades(gradebook), "Attention (55)"
        )
    assert without == ["Turing, Alan"]
    assert strangers == ["godelkurt (godelkurt_1236_2_hw)"]
    assert (tmp_path / "canvas.csv").read_text().splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,Attention (55)",
        "    Points Possible,,,,,3",
        '"Lovelace, Ada",1234,s1,ada,01,2.5',
        '"Turing, Alan",1235,s2,alan,01,',
    ]


def test_a_number_of_one_column_is_not_looked_for_in_another(tmp_path):
    (tmp_path / "roster.csv").write_text(
        "Student,ID,SIS User ID\n    Points Possible,,\nAda,111111,222222\nAlan,222222,333333\nKurt,444444,555555\n"
    )
    with gradebook_with(tmp_path, turingalan_222222_1_hw=2.0, godelkurt_444444_2_hw=1.0) as gradebook:
        without, strangers = write_canvas(tmp_path / "canvas.csv", tmp_path / "roster.csv", grades(gradebook), "A")
    assert (without, strangers) == (["Ada"], [])
    assert (tmp_path / "canvas.csv").read_text().splitlines()[2:] == [
        "Ada,111111,222222,",
        "Alan,222222,333333,2",
        "Kurt,444444,555555,1",
    ]


def test_a_roster_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "roster.csv").write_bytes("Student,ID\nMüller,1\n".encode("latin-1"))
    for read in (read_roster, read_groups):
        with pytest.raises(RosterError, match=r"roster.csv is no csv file in UTF-8 .*; save it as one"):
            read(tmp_path / "roster.csv")


@pytest.mark.parametrize("metadata", ["a: [", "- submission_11", "submission_11: text", b"\xff"])
def test_metadata_that_cannot_be_read_is_refused(tmp_path, metadata):
    (tmp_path / METADATA).write_bytes(metadata if isinstance(metadata, bytes) else metadata.encode())
    with pytest.raises(RosterError, match=r"submission_metadata.yml .*; take it from Gradescope's export again"):
        handed_in(tmp_path / "submission_11", "submission_11")


def test_a_file_that_is_no_roster_is_refused(tmp_path):
    (tmp_path / "roster.csv").write_text("name,points\n")
    with pytest.raises(RosterError, match="has no columns Student and ID; export the gradebook from Canvas"):
        write_canvas(tmp_path / "canvas.csv", tmp_path / "roster.csv", [], "Attention")

"""What `cs336 staff grade` says to staff: progress, what to look at, and what a class has in common."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from staff.tests.grading.conftest import invoke
from staff.tests.grading.test_gradebook import GRADING, PROBLEMS, ROWS, new_gradebook, scored
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome
from whichline_grader.grading.batch import Progress
from whichline_grader.grading.commands import draw_board, draw_findings, list_remarks, show_progress
from whichline_grader.grading.course import Course
from whichline_grader.grading.feedback import feedback
from whichline_grader.grading.gradebook import Results
from whichline_grader.grading.graded import Notes
from whichline_grader.grading.identity import HandedIn, Student
from whichline_grader.grading.report import Report
from whichline_grader.grading.reports import cut_list, write_course


def test_the_bar_says_how_many_are_done_and_running_and_the_time_left():
    screen = io.StringIO()
    now = Progress([f"s{i}" for i in range(4)])
    with show_progress(Console(file=screen, force_terminal=True, width=100)) as show:
        now.running = 2
        show(now)
        now.done, now.below, now.running = 3, 1, 1
        now.faults["s0"] = "the disk is gone"
        show(now)
    drawn = screen.getvalue()
    assert "0 of 4 done, 2 running, 0 below full points" in drawn
    assert "3 of 4 done, 1 running, 1 below full points, 1 not graded" in drawn
    assert "-:--:--" in drawn or "0:00:0" in drawn


def test_without_a_terminal_progress_is_a_few_lines():
    printed = io.StringIO()
    now = Progress([f"s{i}" for i in range(800)])
    with show_progress(Console(file=printed, width=80)) as show:
        for now.done in range(801):
            show(now)
            show(now)
    first, *_, last = lines = printed.getvalue().splitlines()
    assert first == "40 of 800 done, 0 running, 0 below full points"
    assert (last, len(lines)) == ("800 of 800 done, 0 running, 0 below full points", 20)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"submission": "m_.zip", "path": "/in/m\\xfc\x1b.zip"}, "/in/m\\xfc\ufffd.zip is reported as m_.zip"),
        ({"notes": Notes(refused="it is a PDF")}, "REFUSED, not run, no points: ada: it is a PDF"),
        ({"notes": Notes(taken_in=("left out: 'old.py'",))}, "remark: ada: left out: 'old.py'"),
        ({"notes": Notes(could_hide=("a.py:1 `x`", "…"))}, "to look at: ada: could hide what it calls: a.py:1 `x`; …"),
    ],
)
def test_what_staff_should_look_at_is_listed(change, line):
    assert list(list_remarks([replace(GRADING, **change)])) == [line]


def test_of_a_class_there_is_a_row_for_each_problem_and_a_row_for_nobody():
    printed = io.StringIO()
    one = scored(GRADING)
    Console(file=printed, width=80).print(draw_board([replace(one, submission=f"s{i}") for i in range(300)], PROBLEMS))
    assert "300 submissions, points on average" in printed.getvalue()
    assert "2.00/3" in printed.getvalue()
    assert len(printed.getvalue().splitlines()) < 12


def test_a_long_list_is_cut_and_says_where_the_rest_is():
    assert cut_list(["a", "b", "c"], 2, "see grades.csv") == ["a", "b", "and 1 more: see grades.csv"]
    assert cut_list(["a", "b"], 2, "see grades.csv") == ["a", "b"]


def test_what_was_left_out_is_told_to_the_student():
    assert "left out: 'old.py'" in feedback(Report(replace(GRADING, notes=Notes(taken_in=("left out: 'old.py'",))), {}))


def test_the_costliest_findings_are_first_and_each_submission_counts_once(tmp_path):
    with new_gradebook(tmp_path) as gradebook:
        for name, ids in {"ada": ["halves"], "alan": ["degrees", "halves"], "right": []}.items():
            told = (Finding("softmax", id, (f"{id} of {len(name)}", "It says so.")) for id in ids)
            rows = [replace(row, outcome=Outcome.FAILED, check=Check.ANSWER) for row in ROWS]
            handed = HandedIn((Student(name, name),))
            notes = Notes(explanations=tuple(told))
            gradebook.add(replace(GRADING, submission=name, handed_in=handed, notes=notes, results=rows))
        _, found = write_course(Console(), Results(tmp_path, gradebook, Course(), PROBLEMS))
    (printed := Console(record=True)).print(draw_findings(found))
    assert (tmp_path / "findings.csv").read_text().splitlines() == [
        "points,bonus,submissions,problem,finding,says",
        "4.5,0,2,softmax,halves,halves of … It says so.",
        '3,0,1,softmax,softmax-unexplained,"Tests of Softmax fail, and nothing was found that explains it."',
        "1.5,0,1,softmax,degrees,degrees of 4 It says so.",
    ]
    text = printed.export_text()
    assert text.index("halves of …") < text.index("degrees of 4")


def test_other_systems_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.platform", "darwin")
    for told in (invoke("grade", tmp_path), invoke("reproduce", tmp_path, "test_softmax")):
        assert told.exit_code == 1
        assert "grading needs Linux" in told.output
        assert "Use a Linux machine, or WSL on Windows" in told.output

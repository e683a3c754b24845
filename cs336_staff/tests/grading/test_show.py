"""The progress bar of a batch, and what staff should look at."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cs336_staff.grading.batch import Fault, Progress
from cs336_staff.grading.gradebook import Notes
from cs336_staff.grading.report import feedback
from cs336_staff.grading.show import findings, progress_bar
from cs336_staff.tests.grading.test_gradebook import GRADING


def test_the_bar_says_how_many_are_done_and_running_and_the_time_left():
    screen = io.StringIO()
    now = Progress({f"s{i}": Path(f"s{i}") for i in range(4)})
    with progress_bar(Console(file=screen, force_terminal=True, width=100)) as show:
        now.running = 2
        show(now)
        now.done, now.below, now.running = 3, 1, 1
        now.faults.append(Fault("s0", "the disk is gone"))
        show(now)
    drawn = screen.getvalue()
    assert "0 of 4 done, 2 running, 0 below full points" in drawn
    assert "3 of 4 done, 1 running, 1 below full points, 1 not graded" in drawn
    assert "-:--:--" in drawn or "0:00:0" in drawn


def test_what_a_batch_waits_for_is_said_once():
    printed = io.StringIO()
    now = Progress({"s0": Path("s0")})
    with progress_bar(Console(file=printed, width=80)) as show:
        for now.waits_for in ("waiting for a worker", "waiting for a worker", "", "waiting for a worker", ""):
            show(now)
    assert printed.getvalue().splitlines() == ["0 of 1 done; waiting for a worker"] * 2


def test_without_a_terminal_progress_is_a_few_lines():
    printed = io.StringIO()
    now = Progress({f"s{i}": Path(f"s{i}") for i in range(800)})
    with progress_bar(Console(file=printed, width=80)) as show:
        for now.done in range(801):
            show(now)
            show(now)
    first, *_, last = lines = printed.getvalue().splitlines()
    assert first == "40 of 800 done, 0 running, 0 below full points"
    assert last == "800 of 800 done, 0 running, 0 below full points"
    assert len(lines) == 20


def test_a_path_that_is_no_text_can_be_printed_anywhere():
    (line,) = findings([replace(GRADING, submission="m_ller.zip", path="/in/m\\xfcller\x1b.zip")])
    assert line == "/in/m\\xfcller\N{REPLACEMENT CHARACTER}.zip is reported as m_ller.zip"


def test_a_refused_submission_is_listed():
    (line,) = findings([replace(GRADING, notes=Notes(refused="expected Python code, got a PDF"))])
    assert line == "REFUSED, not run, no points: ada: expected Python code, got a PDF"


def test_what_was_left_out_is_told_to_staff_and_student():
    grading = replace(GRADING, notes=Notes(taken_in=("left out: 'old.py'",)))
    assert "remark: ada: left out: 'old.py'" in list(findings([grading]))
    assert "left out: 'old.py'" in feedback(grading, {})

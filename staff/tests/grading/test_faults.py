"""Faults that no submission has caused: a sandbox or a batch that is killed, a full disk, an unreadable file."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from staff.tests.attacks.grade import TESTS, only
from staff.tests.grading.test_grade import ROOT, Graded
from staff.tests.grading.test_grades import InstantForks
from staff.tests.sandbox.conftest import start
from staff.tools.benchmark_grading import write_submissions
from whichline_grader.grading.batch import How, grade, grade_by
from whichline_grader.grading.gradebook import Gradebook, GradebookError
from whichline_grader.grading.graded import Notes
from whichline_grader.grading.processes import Record
from whichline_grader.grading.suite import GradedSuite, list_refused_results
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.files import describe_instead

HONEST = ROOT / "staff" / "tests" / "attacks" / "honest.py"
SLOW = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'sleeper', 0, 0, 0)\ntime.sleep(1)\n"
# root may read every file, unless it gives that up
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def start_grade(*arguments: object) -> subprocess.Popen[str]:
    command = [*WITHOUT_PRIVILEGE, sys.executable, "-m", "whichline", "staff", "grade", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_zygotes(grader: subprocess.Popen[str]) -> int:
    """Kill every zygote from which the sleeper was forked, until the grader has ended; how many there were."""
    killed: set[int] = set()
    while grader.poll() is None:
        processes = psutil.Process(grader.pid).children(recursive=True)
        of_grader = {process.pid for process in processes}
        for process in processes:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                # An orphan's parent is not ours.
                if process.name() == "sleeper" and (zygote := process.ppid()) in of_grader - killed:
                    os.kill(zygote, 9)
                    killed.add(zygote)
        time.sleep(0.2)
    return len(killed)


def test_each_submission_has_a_line_in_the_log(tmp_path, graded_suite):
    results, instead = list_refused_results(graded_suite.suite, "a zip bomb"), describe_instead()
    ends = [Record(fault="killed", seconds=1.21), Record(results, Notes(trouble="KeyError: 7"), seconds=2, workers=5)]
    (tmp_path / "report.pdf").write_text("")
    told: list[str] = []
    for _ in range(2):
        paths, forks = [HONEST, tmp_path / "report.pdf"], InstantForks(ends)
        grade_by(forks, graded_suite, paths, tmp_path / "out", How(tell=told.append))
    assert (tmp_path / "out" / "log.jsonl").read_text().splitlines() == told
    lines = [json.loads(line) for line in told]
    assert all(datetime.fromisoformat(line.pop("at")).tzinfo for line in lines)
    assert lines == [
        {"submission": "honest.py", "what": "to be tried again", "seconds": 1.2, "why": "killed"},
        {"submission": "report.pdf", "what": "refused", "why": f"expected Python code, got a PDF; {instead}"},
        {"submission": "honest.py", "what": "graded", "workers": 5, "seconds": 2, "trouble": "KeyError: 7"},
        {"submission": "honest.py", "what": "graded before"},
        {"submission": "report.pdf", "what": "graded before"},
    ]


@pytest.mark.nightly
def test_a_fault_of_ours_is_tried_again_listed_apart_and_no_grade(tmp_path):
    paths = [shutil.copyfile(HONEST, tmp_path / name) for name in ("sleeper.py", "unreadable.py", "honest.py")]
    paths[0].write_text(SLOW + HONEST.read_text())
    paths[1].chmod(0)
    out = tmp_path / "results"
    with start_grade(*paths, "--out", out, "--jobs", 1) as grader:
        assert kill_zygotes(grader) == 3
        printed = " ".join(grader.communicate()[0].split())
    assert grader.returncode == 3, printed
    reason = "NOT GRADED, and not because of the submission:"
    assert f"{reason} sleeper.py: SandboxError: the sandbox gives no worker" in printed
    assert f"{reason} unreadable.py: cannot be read: [Errno 13] Permission denied" in printed
    graded = Graded(out, printed)
    assert set(graded.grades()) == {"honest"}
    assert not (out / "sleeper.py").exists()
    paths[1].chmod(0o600)
    with start_grade(*paths, "--out", out, "--sandbox", "none") as grader:
        printed = grader.communicate()[0]
    assert grader.returncode == 0, printed
    assert "Sandbox: none (nothing)" in printed
    assert set(graded.grades()) == {"honest", "sleeper", "unreadable"}
    assert len({grade["points"] for grade in graded.grades().values()}) == 1
    assert graded.results("sleeper.py")["extra_data"]["sandbox"] == "none"
    with sqlite3.connect(out / "gradebook.sqlite") as gradebook:
        assert gradebook.execute("SELECT count(*) FROM attempt").fetchone() == (3,)


def mount(disk: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", disk], check=True)


def try_disk(suite: GradedSuite, sandbox: Sandbox, paths: list[Path], disk: Path, size: int) -> tuple[str, int]:
    """Grade onto a disk of this size, in KiB, then onto the same when it has grown: how and when the first ended."""
    disk.mkdir()
    mount(disk, f"size={size}k")
    try:
        ended = "complete"
        try:
            grade(suite, sandbox, paths, disk, How(jobs=2))
        except (OSError, GradebookError) as error:
            ended = type(error).__name__
        mount(disk, "remount", "size=64m")
        before = read_gradings(disk)
        done = grade(suite, sandbox, paths, disk, How(jobs=2))
        assert (done.done, done.already, done.faults) == (len(paths), len(before), {})
        after = read_gradings(disk)
        assert before.items() <= after.items()
        assert len(after) == len(paths)
        assert {len(outcomes) for outcomes in reported(disk, paths).values()} == {len(TESTS)}
        return ended, len(before)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_loses_nothing(tmp_path, graded_suite):
    paths = [shutil.copyfile(HONEST, tmp_path / f"submission-{i}.py") for i in range(2)]
    # No room for the gradebook, then step by step to room for everything: a submission takes three steps, in which
    # first the gradebook has no room, then its reports.
    sizes = (16, *range(64, 193, 16))
    with start("bubblewrap") as sandbox:
        disks = [try_disk(only(graded_suite, TESTS), sandbox, paths, tmp_path / str(size), size) for size in sizes]
    assert {ended for ended, _ in disks} == {"GradebookError", "OSError", "complete"}
    assert {graded for _, graded in disks} == {0, 1, 2}, "some disk must become full between two submissions"


SUBMISSIONS, BATCHES = 12, 3

# When a submission was graded, and the outcome of each test.
Recorded = dict[str, tuple[str, tuple[str, ...]]]


@pytest.mark.nightly
def test_killed_batches_go_on_where_they_were(tmp_path: Path, graded_suite: GradedSuite) -> None:
    """The less time the tests take, the more of the kills hit what records and reports: one problem is enough."""
    suite = only(graded_suite, {test.name for test in graded_suite.suite.tests if test.problem == "softmax"})
    paths = write_submissions(tmp_path / "submissions", SUBMISSIONS)
    moments, kills = random.Random(0), 0  # noqa: S311 (no secret)
    with start("bubblewrap") as sandbox:
        run = partial(_grade_for, target=partial(grade, suite, sandbox, paths, how=How(jobs=2)))
        started = time.monotonic()
        assert run(None, tmp_path / "undisturbed")
        seconds = time.monotonic() - started
        right = _outcomes(read_gradings(tmp_path / "undisturbed"))
        assert len(right) == SUBMISSIONS
        for number in range(BATCHES):
            out, kept = tmp_path / f"killed-{number}", Recorded()
            while not run(moments.uniform(0.0, seconds / 2), out):
                kills += 1
                before, kept = kept, read_gradings(out)
                assert before.items() <= kept.items()
            final = read_gradings(out)
            assert kept.items() <= final.items()
            assert _outcomes(final) == right == reported(out, paths)
    assert kills > BATCHES


def _grade_for(seconds: float | None, out: Path, target: partial) -> bool:
    """Grade in a process that is killed after that time; tell whether it ended by itself before."""
    process = get_context("fork").Process(target=target, args=(out,))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return False
    assert process.exitcode == 0
    return True


def read_gradings(out: Path) -> Recorded:
    """The gradebook's record of each submission, which was graded once."""
    if not (out / "gradebook.sqlite").exists():
        return {}
    with closing(sqlite3.connect(out / "gradebook.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return {}
        (count,) = connection.execute("SELECT count(*) FROM attempt").fetchone()
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        found = {each.submission: each for each in gradebook.latest()}
    assert len(found) == count
    ended = {name: tuple(result.outcome for result in each.results) for name, each in found.items()}
    return {name: (each.started.isoformat(), ended[name]) for name, each in found.items()}


def _outcomes(gradings: Recorded) -> dict[str, tuple[str, ...]]:
    return {name: outcomes for name, (_, outcomes) in gradings.items()}


def reported(out: Path, paths: list[Path]) -> dict[str, tuple[str, ...]]:
    tests = {path.name: json.loads((out / path.name / "results.json").read_text())["tests"] for path in paths}
    return {name: tuple(x for t in each for x in t["extra_data"]["outcomes"].values()) for name, each in tests.items()}

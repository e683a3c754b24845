"""Trees as students hand them in, each with the grade that it deserves."""

import os
import subprocess
import sys

import pytest

from cs336_kit.engine.assignment import load_problems
from cs336_staff.tests.files import rows_of
from cs336_staff.tests.grading.shadow_class import CLASS, CORE, MAXIMUM, ROOT, write_tree

pytestmark = pytest.mark.slow
NEARLY_NONE = 0.15  # of a problem's points, for inputs left alone, single tokens and single heads


def runs_here(tree):
    return sys.version_info >= tuple(map(int, (tree.python or "3.11").split(".")))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The row of each tree in grades.csv."""
    out = tmp_path_factory.mktemp("class")
    handed_in = tmp_path_factory.mktemp("handed_in")
    trees = [str(write_tree(name, handed_in)) for name, tree in CLASS.items() if runs_here(tree)]
    jobs = str(len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "cs336_kit", "staff", "grade", "--jobs", jobs, "--out", str(out), *trees]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["submission"]: row for row in rows_of(out / "grades.csv")}


def test_each_problem_gets_what_it_deserves(rows):
    problems = load_problems(ROOT)
    wrong = []
    for name, row in rows.items():
        for problem in problems:
            points = float(row[problem] or 0) / problems[problem].points
            deserved = CLASS[name].deserved.get(problem, "none")
            fair = {"full": points == 1, "none": points <= NEARLY_NONE}.get(deserved, 0 < points < 1)
            if not fair:
                wrong.append(f"{name} has {points:.0%} of {problem}, and deserves {deserved}")
    assert not wrong


def test_the_points_of_all_are_what_they_were(rows):
    assert {name: float(row["points"]) for name, row in rows.items()} == {
        name: pytest.approx(CLASS[name].points, abs=0.006) for name in rows
    }


def test_right_trees_have_full_marks(rows):
    right = [name for name in rows if all(CLASS[name].deserved[problem] == "full" for problem in CORE)]
    full = [name for name in right if float(rows[name]["points"]) >= MAXIMUM]
    assert len(right) >= 28
    assert full == right

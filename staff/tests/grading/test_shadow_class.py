"""Trees as students hand them in, each with the grade that it deserves."""

import os
import sys

import pytest

from staff.tests.files import rows_of
from staff.tests.grading.shadow_class import CLASS, CORE, ROOT, write_tree
from staff.tests.sandbox.conftest import start
from whichline.engine.assignment import load_problems
from whichline_grader.grading.batch import How, grade

pytestmark = pytest.mark.nightly
NEARLY_NONE = 0.15  # of a problem's points, for inputs left alone, single tokens and single heads


@pytest.fixture(scope="module")
def rows(tmp_path_factory, graded_suite):
    """The row of each tree in grades.csv."""
    out, handed_in = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("handed_in")
    run_here = [name for name, tree in CLASS.items() if sys.version_info >= tuple(map(int, tree.python.split(".")))]
    trees = [write_tree(name, handed_in) for name in run_here]
    with start("bubblewrap") as sandbox:
        done = grade(graded_suite, sandbox, trees, out, How(jobs=len(os.sched_getaffinity(0))))
    assert not done.faults
    return {row["submission"]: row for row in rows_of(out / "grades.csv")}


def test_each_problem_gets_what_it_deserves(rows):
    problems = load_problems(ROOT)
    wrong = []
    for name, row in rows.items():
        for problem in problems:
            points = float(row[problem] or 0) / problems[problem].points
            deserved = CLASS[name].deserved.get(problem, "none")
            if not {"full": points == 1, "none": points <= NEARLY_NONE}.get(deserved, 0 < points < 1):
                wrong.append(f"{name} has {points:.0%} of {problem}, and deserves {deserved}")
    assert not wrong
    assert sum(all(CLASS[name].deserved[problem] == "full" for problem in CORE) for name in rows) >= 28


def test_the_points_of_all_are_what_they_were(rows):
    expected = {name: pytest.approx(CLASS[name].points, abs=0.006) for name in rows}
    assert {name: float(row["points"]) for name, row in rows.items()} == expected

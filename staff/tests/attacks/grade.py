"""Grade attacks, an honest submission after each, in one batch: `grade.py LAYERS FOLDER ID...`, a process of its own.

The suite is cut down to a few public and hidden softmax tests, since a submission that forges one test can forge all.
"""

import os
import shutil
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from staff.tests import ROOT
from staff.tests.attacks.attack import find_attacks
from whichline.engine.suite import add_points
from whichline_grader.grading import batch
from whichline_grader.grading.course import Course
from whichline_grader.grading.suite import GradedSuite, load_graded_suite
from whichline_grader.sandbox import confinement as sandbox
from whichline_grader.sandbox.limits import Limits

TESTS = {
    *("test_softmax[2d-first-dim]", "test_softmax[3d-last-dim]", "test_softmax_gradients[last-dim]"),
    *("test_hidden_softmax[3d-first-dim]", "test_hidden_softmax[square]", "test_hidden_softmax_gradients[first-dim]"),
    *("test_softmax_sums_to_one[two-dimensions]", "test_softmax_has_no_side_effects[3d-middle-dim]"),
}
# Little time, since the attacks that hang use all of it, and memory for torch and a little more. Time on the clock is
# much longer than the processor's: other runs go on beside this one.
LIMITS = Limits(call_seconds=0.5, seconds=2.5, patience=60, memory_bytes=512 << 20)


def only(graded: GradedSuite, tests: Collection[str]) -> GradedSuite:
    """The same, cut down to some tests, which share all points of their problem."""
    kept = [test for test in graded.suite.tests if test.name in tests]
    functions = {test.function for test in kept}
    problems = {
        id: replace(each, tests={test: weight for test, weight in each.tests.items() if test in functions})
        for id, each in graded.problems.items()
    }
    return replace(graded, suite=replace(graded.suite, problems=problems, tests=add_points(kept, problems)))


def main(layers: str, folder: Path, ids: Collection[str]) -> None:
    """Write a gradebook and reports to FOLDER/LAYER, but not for a layer that does not work here."""
    os.environ["CS336_STAFF_TOKEN"] = "not for students"  # noqa: S105
    (folder / "made").mkdir(parents=True)
    paths = []
    for attack in find_attacks(folder / "made", ids):
        shutil.copyfile(Path(__file__).with_name("honest.py"), folder / attack.neighbour)
        paths += [attack.path, folder / attack.neighbour]

    suite = replace(only(load_graded_suite(ROOT), TESTS), course=Course(limits=LIMITS))
    for layer in layers.split():
        try:
            with sandbox.start(layer) as box:  # type: ignore[arg-type]
                done = batch.grade(suite, box, paths, folder / layer, batch.How(jobs=2))
            assert not done.faults, f"not graded, though nothing of ours is broken: {done.faults}"
        except sandbox.SandboxError as error:
            print(f"no {layer} here: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

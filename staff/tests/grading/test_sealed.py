"""Tests run again on what was answered, and none of a submission's code does."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.grade import only
from whichline_grader.grading.batch import grade
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.processes import ANSWERS
from whichline_grader.grading.questions import Sealed, read_sealed
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Process, Sandbox, start
from whichline_grader.sandbox.submission import Submission, take_in

pytestmark = pytest.mark.slow
WRONG = """
from cs336_basics.nn.functional import softmax
def run_softmax(in_features, dim):
    print("dim", dim)
    if in_features.ndim == 1: raise ValueError("no")
    return softmax(in_features, -1)
def run_rope(*arguments, **more):
    import os
    os._exit(0)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start("bubblewrap") as sandbox:
        yield sandbox


class Closed(Sandbox):
    """Gives no worker."""

    def __init__(self) -> None: ...

    def fork(self, *_: object, **__: object) -> Process:
        raise AssertionError("a worker was asked for")


def read(record: bytes, suite: GradedSuite) -> Sealed | None:
    return read_sealed(record, suite.questions, suite.asked_sha256)


def test_results_from_the_record_are_those_of_the_run(graded_suite: GradedSuite, sandbox: Sandbox) -> None:
    files = dict(take_in(ROOT).files)
    submission = Submission("x", files | {"adapters.py": files["adapters.py"] + WRONG.encode()}, "adapters")
    tests = [test.name for test in graded_suite.suite.tests if test.problem in ("softmax", "linear", "rope")]
    suite = only(graded_suite, tests)
    results, notes, sealed = grade_one(suite, sandbox, submission)
    record = sealed.as_bytes(suite.asked_sha256)
    assert len(record) < 2 << 20
    again, noted, resealed = grade_one(suite, Closed(), submission, read(record, suite))
    assert [replace(result, seconds=0) for result in again] == [replace(result, seconds=0) for result in results]
    assert noted == notes
    assert "dim" in notes.stdout
    assert resealed.as_bytes(suite.asked_sha256) == record


def test_what_is_no_record_of_these_questions_is_as_good_as_none(graded_suite: GradedSuite, sandbox: Sandbox) -> None:
    tests = only(graded_suite, {"test_softmax[1d]"})
    _, _, sealed = grade_one(tests, sandbox, take_in(ROOT))
    record = sealed.as_bytes(graded_suite.asked_sha256)
    assert read(record, graded_suite)
    for damaged in (b"", b"x", record[:-20], record[:50]):
        assert read(damaged, graded_suite) is None
    others = replace(graded_suite, questions={**graded_suite.questions, "one more": []})
    assert read(record, others) is None


NOISE = """
import torch
def run_softmax(in_features, dim):
    return torch.rand(250_000)
"""


def test_a_record_that_is_much_larger_than_that_of_right_answers_is_not_kept(
    graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path
) -> None:
    tests = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    tests = replace(tests, questions=tests.choose([test.name for test in tests.suite.tests]))
    for name, source in (("noise.py", NOISE), ("right.py", (ROOT / "staff/tests/attacks/honest.py").read_text())):
        (tmp_path / name).write_text(source)
        assert not grade(tests, sandbox, [tmp_path / name], tmp_path / "results").faults
    (record,) = (tmp_path / "results" / ANSWERS).iterdir()
    assert record.name == take_in(tmp_path / "right.py").sha256
    assert record.stat().st_size < tests.record_bytes < 3_000_000


def test_where_a_test_has_changed_nothing_is_asked_again(
    graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path
) -> None:
    tests = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    (tmp_path / "wrong.py").write_text((ROOT / "adapters.py").read_text() + WRONG)
    out = tmp_path / "results"
    grade(tests, sandbox, [tmp_path / "wrong.py"], out)
    assert len(list((out / ANSWERS).iterdir())) == 1
    changed = replace(tests, suite=replace(tests.suite))
    vars(changed)["sha256"] = "of a suite in which a test has changed"  # a cached property
    with ExitStack() as stack:
        closed = Closed()
        closed.achieved = sandbox.achieved
        done = grade(changed, closed, [tmp_path / "wrong.py"], out)
        assert (done.already, done.faults) == (0, {})
        gradebook = stack.enter_context(Gradebook(out / "gradebook.sqlite"))
        grading = gradebook.of("wrong.py")
    assert grading
    assert grading.suite == changed.sha256

"""A verdict depends on the submission alone: not on the load of the machine, and not on the submission beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests.attacks.grade import only
from staff.tests.sandbox.conftest import ROOT, start
from staff.tests.specimens.specimen import SPECIMENS
from staff.tests.under_load import busy, verdicts
from whichline_grader.grading import batch, one_submission, processes
from whichline_grader.grading.course import Course
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.limits import Limits

pytestmark = pytest.mark.nightly

TESTS = {
    "test_softmax[1d]",
    "test_softmax[3d-last-dim]",
    "test_softmax_gradients[last-dim]",
    "test_hidden_softmax[3d-first-dim]",
    "test_softmax_sums_to_one",
    "test_linear[2d]",
    "test_linear_of_any_shape",
    "test_rope[in-order]",
    "test_hidden_rope[permuted]",
}
SOFTMAX = "def run_softmax(in_features, dim):\n    {}\n    e = in_features.exp()\n    return e / e.sum(dim, True)\n"
# Each uses its time in a way of its own; a call may take a second.
SLOW = {
    "computes": "import time\n    while in_features.ndim == 1 and time.process_time() < 0.6: pass",
    "sleeps": "import time; time.sleep(0.6 * (in_features.ndim == 1))",
    "loops": "while in_features.ndim == 3: pass",
    "waits": "import threading; threading.Event().wait(1e6 if in_features.ndim == 3 else 0)",
    "locks": "import threading; lock = threading.Lock(); lock.acquire(); in_features.ndim == 3 and lock.acquire()",
}


@pytest.mark.nightly
def test_submissions_get_the_same_verdict_on_a_busy_machine(tmp_path: Path, graded_suite: GradedSuite) -> None:
    kinds = [[each for each in SPECIMENS if kind in each.name] for kind in ("softmax-", "linear-", "rope-")]
    programs = {each.name: each.code for specimens in kinds for each in specimens[::5]}
    programs |= {name: SOFTMAX.format(statement) for name, statement in SLOW.items()}
    assert len(programs) >= 18
    paths = [tmp_path / f"{name}.py" for name in programs]
    for path in paths:
        path.write_text(programs[path.stem])
    suite = replace(only(graded_suite, TESTS), course=Course(limits=Limits(call_seconds=1)))
    with start("process") as sandbox:
        quiet = verdicts(suite, sandbox, paths)
        with busy(8):
            assert verdicts(suite, sandbox, paths) == quiet
    assert "no answer within 1 s" in quiet["loops.py"]
    assert "no answer within 1 s" in quiet["waits.py"]
    assert "no answer within" not in quiet["computes.py"] + quiet["sleeps.py"]


def test_what_this_side_may_use_for_a_submission_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graded_suite: GradedSuite
) -> None:
    monkeypatch.setattr(processes, "SECONDS", 1)
    monkeypatch.setattr(one_submission, "judge", lambda *_: any(iter(int, 1)))
    suite = only(graded_suite, {"test_softmax[1d]"})
    with start("process") as sandbox:
        done = batch.grade(suite, sandbox, [ROOT / "staff/tests/attacks/honest.py"], tmp_path)
    assert [*done.faults.values()] == ["the grading process ended with exit status -9"]

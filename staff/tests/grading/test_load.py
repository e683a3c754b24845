"""A verdict depends on the submission alone, not on the load of the machine, and what grades it has limits, too."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from staff.tests.attacks.grade import only
from staff.tests.live import connect
from staff.tests.sandbox.conftest import ROOT, start
from staff.tests.under_load import busy
from whichline_grader.grading import batch, one_submission, processes
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.reply import TimedOut
from whichline_grader.sandbox.submission import Submission

pytestmark = pytest.mark.nightly
IN_TIME = ("while time.process_time() < started + 0.6: pass", "time.sleep(0.6)")
ENDLESS = ("while True: pass", "threading.Event().wait()", "lock.acquire(); lock.acquire()")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start("process") as sandbox:
        yield sandbox


@pytest.mark.parametrize("statement", [*IN_TIME, *ENDLESS])
def test_a_call_may_take_its_own_time_on_a_busy_machine(sandbox: Sandbox, statement: str) -> None:
    begin = "import threading, time\nlock, started = threading.Lock(), time.process_time()\n"
    source = f"{begin}def run_softmax(x, dim):\n    {statement}\n    return dim\n".encode()
    adapters: Any = connect(sandbox, Submission("x", {"adapters.py": source}, "adapters"), Limits(call_seconds=1))
    with busy(8), nullcontext() if statement in IN_TIME else pytest.raises(TimedOut, match="no answer within 1 s"):
        assert adapters.run_softmax(torch.ones(1), 7) == 7
    adapters.respondent.interview.end_worker()


def test_what_this_side_may_use_for_a_submission_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graded_suite: GradedSuite, sandbox: Sandbox
) -> None:
    monkeypatch.setattr(processes, "SECONDS", 1)
    monkeypatch.setattr(one_submission, "judge", lambda *_: any(iter(int, 1)))
    suite = only(graded_suite, {"test_softmax[1d]"})
    done = batch.grade(suite, sandbox, [ROOT / "staff/tests/attacks/honest.py"], tmp_path)
    assert [*done.faults.values()] == ["the grading process ended with exit status -9"]

"""Run the collected tests on one submission and give each a verdict."""

import time
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from cs336_kit.failure import Failure, describe
from cs336_staff.grading.client import ProtocolViolation, StudentError, WorkerStopped
from cs336_staff.grading.explain import for_student, mark_student_frames
from cs336_staff.grading.submission import Submission
from cs336_staff.grading.verdict import Outcome, Verdict

STUDENTS_DOING = (AssertionError, pytest.fail.Exception, StudentError, WorkerStopped)


class KeepErrors:
    """A pytest plugin: a report of a failure has the exception, the case and the kit's words for it.

    They are its attributes `error` and `case`, and its `longrepr`.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, StudentError | WorkerStopped):
            mark_student_frames(error)
        report = yield
        case: Any = getattr(error, "case", item.funcargs.get("case"))
        if error is not None:
            report.longrepr = describe(error, case, item.config.rootpath, (item.location[0], item.location[1] or 0))
        report.error, report.case = error, case  # type: ignore[attr-defined]
        return report


def run(item: pytest.Function, following: pytest.Function | None, hidden: bool, submission: Submission) -> Verdict:
    """Run one test; the adapters must be calling a worker of `submission`.

    Args:
        item: the test, collected in a session that has the plugin `KeepErrors`.
        following: the test after it, which may share what is set up for a module.
        hidden: whether students must not learn its inputs.
        submission: what is tested.
    """
    started = time.monotonic()
    reports = runtestprotocol(item, log=False, nextitem=following)
    seconds = time.monotonic() - started
    broken = next((report for report in reports if not report.passed), None)
    if broken is None:
        return Verdict(item.name, "passed", seconds)
    error: BaseException | None = getattr(broken, "error", None)
    details = str(broken.longrepr)
    if not isinstance(broken.longrepr, Failure) or not isinstance(error, STUDENTS_DOING):
        return Verdict(item.name, "error", seconds, "this test could not be graded", details)
    outcome: Outcome = "violation" if isinstance(error, ProtocolViolation) else "failed"
    message = for_student(error, broken.longrepr, getattr(broken, "case", None), submission) if hidden else details
    return Verdict(item.name, outcome, seconds, message, details)

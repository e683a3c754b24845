"""Run the collected tests on one submission and give each a verdict."""

import time
from collections.abc import Generator

import pytest
from _pytest.runner import runtestprotocol

from cs336_kit.failure import Failure
from cs336_staff.grading.client import ProtocolViolation, StudentError, WorkerStopped
from cs336_staff.grading.explain import for_student, mark_student_frames
from cs336_staff.grading.submission import Submission
from cs336_staff.grading.verdict import Outcome, Verdict

STUDENTS_DOING = (AssertionError, pytest.fail.Exception, StudentError, WorkerStopped)


class KeepErrors:
    """A pytest plugin: a report has what ended the test and the case as its attributes `error` and `case`."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, StudentError | WorkerStopped):
            mark_student_frames(error)  # before the kit puts it in words
        report = yield
        report.error = error  # type: ignore[attr-defined]
        report.case = getattr(error, "case", item.funcargs.get("case"))  # type: ignore[attr-defined]
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
    failure = broken.longrepr
    if not isinstance(failure, Failure) or not isinstance(error, STUDENTS_DOING):
        return Verdict(item.name, "error", seconds, "this test could not be graded", str(failure))
    outcome: Outcome = "violation" if isinstance(error, ProtocolViolation) else "failed"
    details = "\n".join([failure.headline, *failure.details, *failure.inputs])
    message = for_student(error, failure, getattr(broken, "case", None), submission) if hidden else details
    return Verdict(item.name, outcome, seconds, message, details)

"""Run the collected tests on one submission and give each a verdict."""

from collections.abc import Generator, Mapping
from typing import Any

import pytest

from cs336_kit.engine.failure import Failure
from cs336_staff.grading.explain import for_student, mark_student_frames
from cs336_staff.grading.verdict import Outcome, Verdict
from cs336_staff.sandbox.submission import Submission
from cs336_staff.sandbox.worker import ProtocolViolation, StudentError, WorkerStopped

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


def run(item: pytest.Function, arguments: Mapping[str, Any], hidden: bool, submission: Submission) -> Verdict:
    """Run one test; the adapters must be calling a worker of `submission`.

    The test is called without pytest's setting up and tearing down, which would take as long as the test.

    Args:
        item: the test, collected in a session that has the plugin `KeepErrors`.
        arguments: what it is called with.
        hidden: whether students must not learn its inputs.
        submission: what is tested.
    """
    item.funcargs = dict(arguments)
    call = pytest.CallInfo.from_call(lambda: item.obj(**item.funcargs), "call")
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    seconds = call.duration
    if report.passed:
        return Verdict(item.name, "passed", seconds)
    error: BaseException | None = report.error
    failure = report.longrepr
    if not isinstance(failure, Failure) or not isinstance(error, STUDENTS_DOING):
        return Verdict(item.name, "error", seconds, "this test could not be graded", str(failure))
    outcome: Outcome = "violation" if isinstance(error, ProtocolViolation) else "failed"
    details = "\n".join([failure.headline, *failure.details, *failure.inputs])
    message = for_student(error, failure, report.case, submission) if hidden else details
    return Verdict(item.name, outcome, seconds, message, details)

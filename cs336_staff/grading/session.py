"""Run the collected tests on one submission and give each a verdict."""

import time
from collections.abc import Generator, Iterable, Iterator

import pytest
from _pytest.runner import runtestprotocol

from cs336_kit.failure import Failure
from cs336_staff.grading.client import ProtocolViolation, StudentError, Worker, WorkerStopped
from cs336_staff.grading.explain import for_student, mark_student_frames
from cs336_staff.grading.submission import Submission
from cs336_staff.grading.verdict import Outcome, Verdict

STUDENTS_DOING = (AssertionError, pytest.fail.Exception, StudentError, WorkerStopped)


class KeepErrors:
    """A pytest plugin: every report of a failure keeps the exception, as its attribute `error`."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, StudentError):
            mark_student_frames(error)
        report = yield
        report.error = error  # type: ignore[attr-defined]
        return report


def run(items: Iterable[pytest.Function], hidden: set[str], worker: Worker) -> Iterator[Verdict]:
    """Run `items` one after the other; the adapters must be calling `worker`.

    Args:
        items: the tests, collected in a session that has the plugin `KeepErrors`.
        hidden: the names of those whose inputs students must not learn.
        worker: the submission.
    """
    items = list(items)
    for item, following in zip(items, [*items[1:], None], strict=True):
        started = time.monotonic()
        reports = runtestprotocol(item, log=False, nextitem=following)
        seconds = time.monotonic() - started
        broken = next((report for report in reports if not report.passed), None)
        if broken is None:
            yield Verdict(item.name, "passed", seconds)
        else:
            yield _not_passed(item, broken, item.name in hidden, worker.submission, seconds)


def _not_passed(
    item: pytest.Function, report: pytest.TestReport, hidden: bool, submission: Submission, seconds: float
) -> Verdict:
    error: BaseException | None = getattr(report, "error", None)
    details = str(report.longrepr)
    if error is None or not isinstance(report.longrepr, Failure) or not isinstance(error, STUDENTS_DOING):
        return Verdict(item.name, "error", seconds, "this test could not be graded; staff have been told", details)
    outcome: Outcome = "violation" if isinstance(error, ProtocolViolation) else "failed"
    case = getattr(error, "case", item.funcargs.get("case"))
    message = for_student(error, report.longrepr, case, submission) if hidden else details
    return Verdict(item.name, outcome, seconds, message, details)

"""Stop `pytest --pdb` in the student's own frame, not in ours or in torch's."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from whichline.engine.errors import Stopped
from whichline.engine.exception_report import list_calls
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite, Test

Place = tuple[str, int]  # a file and a line


class HereError(Stopped):
    """Ends a call in the frame that the debugger will show."""


def find_frame(suite: Suite, test: Test, findings: Sequence[Finding]) -> TracebackType | None:
    """Run a failing test again, up to the line to look at, and return a traceback of the student's frames alone.

    It ends where the code raised. If it did not raise, it ends before the line of the finding or, without a finding,
    before the last line that ran.
    """
    frames = list_calls(suite.ending(test), suite.has_written)
    if not frames:
        places = [(str(suite.root / each.file), each.line) for each in reversed(findings) if each.file]
        if not places:
            _follow(suite, test, places.append)
        frames = list_calls(_follow(suite, test, lambda place: _stop(place in places[-1:])), suite.has_written)
    found = None
    for trace in reversed(frames):
        found = TracebackType(found, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return found


def _stop(is_there: bool) -> None:
    if is_there:
        raise HereError


def _follow(suite: Suite, test: Test, look: Callable[[Place], None]) -> BaseException | None:
    """Run a test and call `look` before each of the student's lines; return the exception that ended the test."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            look((frame.f_code.co_filename, frame.f_lineno))
        return trace if suite.has_written(frame.f_code.co_filename) else None

    traced = sys.gettrace()
    sys.settrace(trace)
    try:
        return suite.ending(test)
    finally:
        sys.settrace(traced)

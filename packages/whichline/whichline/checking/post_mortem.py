"""Stop `pytest --pdb` in the student's own frame, not in ours or in torch's."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from whichline.engine.errors import Stopped
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite, Test

Place = tuple[str, int]  # a file and a line


class HereError(Stopped):
    """Ends a call in the frame that is to be looked at."""


def find_frame(suite: Suite, test: Test, told: Sequence[Finding]) -> TracebackType | None:
    """Run a test again, up to where a student wants to look.

    Args:
        suite: the student's functions.
        test: a test that fails.
        told: what explains it.

    Returns:
        A traceback of the student's frames alone. The last of them is where the code raised; else it is about to run
        the line that is told or, if none is told, the last one that is run.
    """
    frames = _list_frames(suite, suite.ending(test))
    if not frames:
        places = [(str(suite.root / each.file), each.line) for each in reversed(told) if each.file]
        if not places:
            _follow(suite, test, places.append)
        frames = _list_frames(suite, _follow(suite, test, lambda place: _stop(place in places[-1:])))
    found = None
    for trace in reversed(frames):
        found = TracebackType(found, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return found


def _stop(is_there: bool) -> None:
    if is_there:
        raise HereError


def _follow(suite: Suite, test: Test, look: Callable[[Place], None]) -> BaseException | None:
    """Run a test and look at each line of the student's before it runs; what ended the test."""

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


def _list_frames(suite: Suite, error: BaseException | None) -> list[TracebackType]:
    """The student's frames that an error went through."""
    trace, found = error.__traceback__ if error else None, []
    while trace:
        found += [trace] * suite.has_written(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return found

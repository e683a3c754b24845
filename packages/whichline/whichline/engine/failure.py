"""A test that failed, in words: what is wrong, and the student's own lines, without a frame of anyone else's."""

import linecache
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from traceback import FrameSummary
from types import TracebackType
from typing import Any

from torch import Tensor

from whichline.engine.assignment import is_own_file
from whichline.engine.case import Case, CaseError
from whichline.engine.compare import WrongAnswer
from whichline.engine.operands import operands, position
from whichline.engine.patterns import explain_pattern
from whichline.engine.python_errors import in_plain_words
from whichline.engine.refusals import tell_refusal
from whichline.engine.result import Check, Outcome
from whichline.engine.type_errors import expected_and_got

FRAMES = 4  # shown of the outermost and of the innermost calls: endless recursion has a thousand


class StudentRaised(Exception):
    """The student's code raised, in another process.

    Args:
        type: the name of the exception's class.
        message: its text.
        frames: the lines of the student's that it went through, the innermost last.
    """

    def __init__(self, type: str, message: str, frames: Sequence[FrameSummary]) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.frames = frames


class Stopped(BaseException):
    """The student's code was stopped from outside; the message says why.

    It is not an Exception, so that no `except Exception` of a test takes it for an ordinary failure.
    """

    outcome = Outcome.FAILED


class NotWrittenError(Exception):
    """A function that the tests call does not exist; the message says what to write where."""


@dataclass(frozen=True)
class Failure:
    """The end of a test that failed.

    Args:
        check: what failed.
        headline: why, in one sentence that quotes no input and no right answer.
        details: the numbers, or the student's own lines.
        kind, place, raised, functions: as in `Result`.
    """

    check: Check
    headline: str
    details: tuple[str, ...] = ()
    kind: str = ""
    place: str = ""
    raised: str = ""
    functions: tuple[tuple[str, str], ...] = ()


def describe(error: BaseException, root: Path, ours: bool = False) -> Failure:
    """Put an exception that ended a test, or an import of the student's files, into words.

    Args:
        error: the exception.
        root: the folder of the assignment.
        ours: whether the engine raised it, where it met something that nobody thought of.
    """
    try:
        failure = _describe(error, root)
    except Exception:  # it looks at the student's objects, which may do anything
        failure = Failure(Check.CALL, type(error).__name__, raised=type(error).__name__)
    if ours:
        why = f"this test cannot judge your answer: {failure.headline}; tell the staff of your course"
        return replace(failure, headline=why)
    return failure


def _describe(error: BaseException, root: Path) -> Failure:
    if isinstance(error, WrongAnswer):
        headline, *details = str(error).splitlines()
        return Failure(error.check, headline, tuple(details), error.kind)
    if isinstance(error, CaseError | Stopped):
        return Failure(Check.CALL, str(error))
    if isinstance(error, NotWrittenError):
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: {error}")
    frames = frames_of(error, root)
    functions = tuple((frame.filename, frame.name) for frame in frames)
    if isinstance(error, StudentRaised):
        kind, text = error.type, str(error)
    else:
        kind, text = type(error).__name__, "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, StudentRaised) and kind == "NotWrittenError" and not frames:  # the adapter is missing
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: {error.message}")
    if _is_stub(kind, frames):
        place = f"{frames[-1].filename}, line {frames[-1].lineno}"
        what = f"not implemented yet: write {frames[-1].name} in {place}"
        return Failure(Check.NOT_WRITTEN, what, functions=functions)
    if isinstance(error, AssertionError) and not frames:  # an assert of the test's own
        return Failure(Check.PROPERTY, str(error).partition("\n")[0] or "an assert in the test fails")

    headline, *details = text.splitlines()
    if isinstance(error, SyntaxError) and details:  # the place and the line come first, the message last
        headline, *details = details[-1], headline, *details[:-1]
    with suppress(Exception):  # they look at the student's objects, which may do anything
        headline, *details = expected_and_got(error) or [
            headline,
            *(explain_pattern(error) or in_plain_words(error) or details),
        ]
    if frames and (refusal := tell_refusal(text)):
        headline, details = f"{frames[-1].filename}, line {frames[-1].lineno}, {refusal}", str(error).splitlines()
    calls = list(_told(frames))
    if (left_out := len(calls) - 2 * FRAMES) > 0:
        calls[FRAMES:-FRAMES] = [[f"... {left_out} more calls"]]
    with suppress(Exception):
        calls.append([f"    {line}" for line in _operands(error, root)])
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    details = (*details, *chain.from_iterable(calls))
    return Failure(Check.CALL, headline, details, place=place, raised=kind, functions=functions)


def shapes(case: Case, hidden: bool = False) -> tuple[str, ...]:
    """The case: one line for each input and for the answer, with its shape and dtype, or its value.

    Of a hidden case no value is shown but sizes, which are whole numbers.
    """
    expected = f"{tuple(case.expected['answer'].shape)} {case.dtype}".replace("torch.", "")
    shown = {name: x for name, x in case.inputs.items() if not (hidden and isinstance(x, float))}
    rows = {**{name: _shown(value) for name, value in shown.items()}, "expected": expected}
    width = max(map(len, rows))
    return f"the case is {case.name}:", *(f"  {name:<{width}}  {shown}" for name, shown in rows.items())


def _is_stub(kind: str, frames: Sequence[FrameSummary]) -> bool:
    """Tell whether this is a stub's line; torch raises the same class for reasons of its own."""
    line = (frames[-1].line or "") if frames else ""
    return kind == "NotImplementedError" and line.startswith("raise NotImplementedError")


def frames_of(error: BaseException, root: Path) -> list[FrameSummary]:
    """The frames in the student's files, innermost last, named relative to the root and with the class of a method.

    Of an error in this process they have the columns, in bytes.
    """
    if isinstance(error, StudentRaised):
        return list(error.frames)
    return [_frame(trace, root) for trace in student_calls(error, root)]


def _frame(trace: TracebackType, root: Path) -> FrameSummary:
    code = trace.tb_frame.f_code
    name = Path(code.co_filename).relative_to(root).as_posix()
    line = linecache.getline(code.co_filename, trace.tb_lineno)
    _, last, start, end = position(trace)
    return FrameSummary(name, trace.tb_lineno, code.co_qualname, line=line, end_lineno=last, colno=start, end_colno=end)


def _told(frames: Sequence[FrameSummary]) -> Iterator[list[str]]:
    """The lines for each call; calls in a row that are the same, as in endless recursion, are told once."""
    for place, same in groupby(frames, lambda frame: (frame.filename, frame.lineno, frame.name, frame.line)):
        file, number, name, line = place
        yield [f"{file}:{number}, in {name}", f"    {line}"]
        if (more := len(list(same)) - 1) > 1:
            yield [f"... and {more} more times: what should end this recursion?"]


def _operands(error: BaseException, root: Path) -> list[str]:
    calls = list(student_calls(error, root))
    return operands(calls[0], calls[-1]) if calls else []


def student_calls(error: BaseException, root: Path) -> Iterator[TracebackType]:
    """The calls in the student's files that the error went through, the innermost last."""
    trace = error.__traceback__
    while trace:
        if is_own_file(trace.tb_frame.f_code.co_filename, root):
            yield trace
        trace = trace.tb_next


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(each)}' for key, each in value.items())}}}"
    return f"{tuple(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)

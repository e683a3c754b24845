"""A test that failed, in words: what is wrong, and the student's own lines, without a frame of anyone else's."""

import linecache
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from traceback import FrameSummary
from typing import Any

from torch import Tensor

from cs336_kit.engine.assignment import is_students
from cs336_kit.engine.case import Case, CaseError
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.engine.python_errors import in_plain_words
from cs336_kit.engine.result import Check, Outcome

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

    It is no Exception, so that neither a test's `except Exception` nor hypothesis, which would call again and again,
    takes it for an ordinary failure.
    """

    outcome = Outcome.FAILED


class NotWrittenError(Exception):
    """A function that the tests call does not exist; the message says what to write where."""


@dataclass(frozen=True)
class Failure:
    """What ended a test.

    Args:
        check: what failed.
        headline: why, in one sentence that quotes no input and no right answer.
        details: the numbers, or the student's own lines.
        raised: the type's name, if an exception of the student's code ended the test.
        functions: the student's functions that it went through, as file and name, the innermost last.
    """

    check: Check
    headline: str
    details: tuple[str, ...] = ()
    raised: str = ""
    functions: tuple[tuple[str, str], ...] = ()


def describe(error: BaseException, root: Path) -> Failure:
    """Put an exception that ended a test, or an import of the student's files, into words.

    Args:
        error: the exception.
        root: the folder of the assignment.
    """
    if isinstance(error, WrongAnswer):
        headline, *details = str(error).splitlines()
        return Failure(error.check, headline, tuple(details))
    if isinstance(error, CaseError | Stopped):
        return Failure(Check.CALL, str(error))
    if isinstance(error, NotWrittenError):
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: {error}")
    if isinstance(error, StudentRaised):
        frames, kind, text = list(error.frames), error.type, str(error)
    else:
        frames = list(_student_frames(error, root))
        kind, text = type(error).__name__, "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, StudentRaised) and kind == "NotWrittenError" and not frames:  # the adapter is missing
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: {error.message}")
    if _is_stub(kind, frames):
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: write {frames[-1].name} in {frames[-1].filename}")
    if isinstance(error, AssertionError) and not frames:  # an assert of the test's own
        return Failure(Check.PROPERTY, str(error).partition("\n")[0] or "an assert in the test fails")

    headline, *details = text.splitlines()
    if isinstance(error, SyntaxError) and details:  # the place and the line come first, the message last
        headline, *details = details[-1], headline, *details[:-1]
    with suppress(Exception):  # it looks at the student's objects, which may do anything
        details = in_plain_words(error) or details
    calls = [[f"{frame.filename}:{frame.lineno}, in {frame.name}", f"    {frame.line}"] for frame in frames]
    if (left_out := len(calls) - 2 * FRAMES) > 0:
        calls[FRAMES:-FRAMES] = [[f"... {left_out} more calls"]]
    functions = tuple((frame.filename, frame.name) for frame in frames)
    return Failure(Check.CALL, headline, (*details, *chain.from_iterable(calls)), kind, functions)


def with_type(error: BaseException) -> str:
    """The type and the text of an exception, also of one that the student's code raised in another process."""
    return str(error) if isinstance(error, StudentRaised) else f"{type(error).__name__}: {error}"


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
    """Whether this is the line that stands where the student is to write; torch raises the same class of its own."""
    return kind == "NotImplementedError" and bool(frames) and frames[-1].line == "raise NotImplementedError"


def _student_frames(error: BaseException, root: Path) -> Iterator[FrameSummary]:
    """The frames in the student's files, innermost last, named relative to the root and with the class of a method."""
    for frame, lineno in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(root) and is_students(path.relative_to(root)):
            name, line = path.relative_to(root).as_posix(), linecache.getline(str(path), lineno)
            yield FrameSummary(name, lineno, code.co_qualname, line=line)


def _shown(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)

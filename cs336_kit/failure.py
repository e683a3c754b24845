"""What a student sees of a test that failed: the mistake and their own lines, without a frame of pytest's or ours."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter
from torch import Tensor

from cs336_kit.cases import Case, CaseError
from cs336_kit.compare import WrongAnswer

NOT_THE_STUDENTS = ("tests", "cs336_kit", ".venv")


class Failure(TerminalRepr):
    """The text of one failure; the first line is the one that summaries show.

    Args:
        headline: what is wrong.
        details: the lines below it.
        place: the file and line that the summary points to.
    """

    def __init__(self, headline: str, details: list[str], place: tuple[str, int]) -> None:
        self.headline = headline
        self.details = details
        self.reprcrash = ReprFileLocation(*place, headline)  # pytest's short summary reads this

    def toterminal(self, tw: TerminalWriter) -> None:
        tw.line(self.headline, red=True, bold=True)
        for line in self.details:
            tw.line(f"  {line}")


def describe(error: BaseException, case: Case | None, root: Path, place: tuple[str, int]) -> Failure:
    """Put an exception that ended a test into words.

    Args:
        error: the exception.
        case: what the test ran on, if it ran on a case.
        root: the folder of the assignment; frames below it are the student's unless they are the kit's or a test's.
        place: file and line of the test.
    """
    frames = list(_student_frames(error, root))
    inputs = [] if case is None else list(_inputs(case))
    if isinstance(error, NotImplementedError):
        what = f"write {frames[-1].name} in {frames[-1].filename}" if frames else str(error)
        return Failure(f"not implemented yet: {what}", [], place)
    if isinstance(error, CaseError):
        return Failure(str(error), [], place)
    if isinstance(error, WrongAnswer):
        headline, *details = str(error).splitlines()
        return Failure(headline, [*details, *inputs], place)
    if isinstance(error, AssertionError) and not frames:
        # pytest adds the asserted expression below the message of a plain assert.
        return Failure(str(error).splitlines()[0], inputs, place)

    headline, *details = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError):  # the place and the line come first, the message last
        headline, *details = details[-1], headline, *details[:-1]
    for frame in frames:
        details += [f"{frame.filename}:{frame.lineno}, in {frame.name}", f"    {frame.line}"]
    return Failure(headline, [*details, *inputs], place)


def _student_frames(error: BaseException, root: Path) -> Iterator[traceback.FrameSummary]:
    """The frames in the student's files, innermost last, named relative to the root and with the class of a method."""
    for frame, lineno in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(root) and path.relative_to(root).parts[0] not in NOT_THE_STUDENTS:
            yield traceback.FrameSummary(path.relative_to(root).as_posix(), lineno, code.co_qualname)


def _inputs(case: Case) -> Iterator[str]:
    """One line for each input: its shape and dtype, or its value."""
    yield f"the case is {case.name}:"
    width = max(len(name) for name in case.inputs)
    for name, value in case.inputs.items():
        yield f"  {name:<{width}}  {_shown(value)}"


def _shown(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)

"""What a student sees of a test that failed: the mistake and their own lines, without a frame of pytest's or ours."""

import linecache
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter
from torch import Tensor

from cs336_kit.engine.assignment import is_students
from cs336_kit.engine.case import Case, CaseError
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.engine.python_errors import in_plain_words
from cs336_kit.examination.by_hand import by_hand
from cs336_kit.examination.diagnosis import Evidence, Mistake

WIDTH = 78
# More mistakes than this fit because the case is small, not because anything is known.
MOST_MISTAKES = 3
FRAMES = 4  # shown of the outermost and of the innermost calls: endless recursion has a thousand


class Failure(TerminalRepr):
    """One failure as data, and its text.

    Args:
        headline: what is wrong; the line that summaries show. It says nothing about the inputs or the right answer.
        place: the file and line that the summary points to.
        details: the numbers or the student's lines.
        evidence: what the test says about known mistakes, if it ran on a case.
        hand: rows to check by hand when no mistake is known.
        inputs: what the case is.

    Attributes:
        mistakes: the known mistakes that this is, as far as the whole run can tell; set when the run ends.
        alone: whether they explain this test and not all that failed with it.
    """

    def __init__(
        self,
        headline: str,
        place: tuple[str, int],
        details: list[str] | None = None,
        evidence: Evidence | None = None,
        hand: list[str] | None = None,
        inputs: list[str] | None = None,
    ) -> None:
        self.headline = headline
        self.reprcrash = ReprFileLocation(*place, headline)  # pytest's short summary reads this
        self.details = details or []
        self.evidence = evidence
        self.hand = hand or []
        self.inputs = inputs or []
        self.mistakes: list[Mistake] = []
        self.alone = False

    def toterminal(self, tw: TerminalWriter) -> None:
        for line in textwrap.wrap(self.headline, WIDTH):
            tw.line(line, red=True, bold=True)
        _write(tw, self.details)
        named = list(naming(self.mistakes, self.alone))
        if named:
            tw.line()
            _write(tw, named, bold=True)
        elif self.evidence is not None and not self.evidence.raised:
            tw.line()
            _write(tw, self.evidence.relations or ["No known mistake gives this answer.", *self.hand])
        if self.inputs:
            tw.line()
            _write(tw, self.inputs)


def naming(mistakes: list[Mistake], alone: bool) -> Iterator[str]:
    """The lines that name a mistake, ask the question that leads to it and say where to read on.

    They say nothing about the inputs or the right answer.
    """
    if not mistakes:
        return
    if len(mistakes) > MOST_MISTAKES:
        yield f"{len(mistakes)} known mistakes would fail this test like this; run the whole problem to tell which."
        return
    if alone:
        yield "More than one thing is wrong in this problem; this test looks like this:"
    for number, mistake in enumerate(mistakes):
        yield f"{'Or: ' if number else ''}{mistake.name[0].upper()}{mistake.name[1:]}."
    yield from dict.fromkeys(f"  Think: {mistake.hint}" for mistake in mistakes)
    yield from dict.fromkeys(f"  Read:  docs/assignment.md, section {mistake.section}" for mistake in mistakes)


def describe(
    error: BaseException, case: Case | None, evidence: Evidence | None, root: Path, place: tuple[str, int]
) -> Failure:
    """Put an exception that ended a test into words.

    Args:
        error: the exception. One that was raised in another process has its text as `student_error` and its frames as
            `student_frames`.
        case: what the test ran on, if it ran on a case.
        evidence: what the test says about known mistakes.
        root: the folder of the assignment.
        place: file and line of the test.
    """
    inputs = [] if case is None else list(_inputs(case))
    if isinstance(error, WrongAnswer):
        headline, *details = str(error).splitlines()
        hand = []
        if case is not None and case.checks[-1:] == ["answer"] and isinstance(error.outcome, Tensor):
            hand = by_hand(case, error.outcome)
        return Failure(headline, place, details, evidence, hand, inputs)
    elsewhere = getattr(error, "student_frames", None)
    frames = list(_student_frames(error, root)) if elsewhere is None else elsewhere
    if isinstance(error, NotImplementedError):
        what = f"write {frames[-1].name} in {frames[-1].filename}" if frames else str(error)
        return Failure(f"not implemented yet: {what}", place)
    if isinstance(error, CaseError):
        return Failure(str(error), place)
    if _is_plain_assert(error, frames):
        # pytest adds the asserted expression below the message of a plain assert.
        return Failure(str(error).partition("\n")[0] or "an assert of the test fails", place, inputs=inputs)

    text = getattr(error, "student_error", None) or "".join(traceback.format_exception_only(error))
    headline, *details = text.strip().splitlines()
    if isinstance(error, SyntaxError) and details:  # the place and the line come first, the message last
        headline, *details = details[-1], headline, *details[:-1]
    with suppress(Exception):  # it looks at the student's objects, which may do anything
        details = in_plain_words(error) or details
    calls = [[f"{frame.filename}:{frame.lineno}, in {frame.name}", f"    {frame.line}"] for frame in frames]
    if (left_out := len(calls) - 2 * FRAMES) > 0:
        calls[FRAMES:-FRAMES] = [[f"... {left_out} more calls"]]
    details += chain.from_iterable(calls)
    return Failure(headline, place, details, evidence, inputs=inputs)


def shows_an_answer(error: BaseException | None, root: Path) -> bool:
    """Whether how a test on a case ended can be held against known mistakes."""
    if error is None or isinstance(error, WrongAnswer):
        return True
    return not isinstance(error, NotImplementedError) and not _is_plain_assert(
        error, list(_student_frames(error, root))
    )


def _is_plain_assert(error: BaseException, frames: list[traceback.FrameSummary]) -> bool:
    """Whether this is an assert of the test's own, and neither of the student's nor a case's check."""
    return isinstance(error, AssertionError) and not isinstance(error, WrongAnswer) and not frames


def _student_frames(error: BaseException, root: Path) -> Iterator[traceback.FrameSummary]:
    """The frames in the student's files, innermost last, named relative to the root and with the class of a method."""
    for frame, lineno in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(root) and is_students(path.relative_to(root)):
            name, line = path.relative_to(root).as_posix(), linecache.getline(str(path), lineno)
            yield traceback.FrameSummary(name, lineno, code.co_qualname, line=line)


def _inputs(case: Case) -> Iterator[str]:
    """One line for each input and for the answer: its shape and dtype, or its value."""
    expected = f"{tuple(case.expected['answer'].shape)} {case.dtype}".replace("torch.", "")
    rows = {**{name: _shown(value) for name, value in case.inputs.items()}, "expected": expected}
    yield f"the case is {case.name}:"
    width = max(map(len, rows))
    for name, shown in rows.items():
        yield f"  {name:<{width}}  {shown}"


def _shown(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)


def _write(tw: TerminalWriter, lines: Any, **markup: bool) -> None:
    for line in lines:
        indent = "  " + " " * (len(line) - len(line.lstrip()))
        for wrapped in textwrap.wrap(line.strip(), WIDTH - len(indent), subsequent_indent="  ") or [""]:
            tw.line(f"{indent}{wrapped}", **markup)

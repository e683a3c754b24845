"""The errors that commands and tests distinguish."""

from collections.abc import Sequence
from traceback import FrameSummary

from whichline.engine.result import Outcome


class CourseworkError(Exception):
    """A file, a suite or a machine cannot be used; the message says what happened, where, and what to do.

    The command prints it without a traceback, and ends with status 1.
    """


class StudentRaised(Exception):
    """The student's code raised, in another process; `frames` are the student's lines, the innermost last."""

    def __init__(self, type: str, message: str, frames: Sequence[FrameSummary]) -> None:
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.frames = type, message, frames


class Stopped(BaseException):
    """The student's code was stopped from outside; the message says why.

    It is no Exception, so an `except Exception` in a test does not take it for an ordinary failure.
    """

    outcome = Outcome.FAILED


class NotWrittenError(Exception):
    """A function that the tests call does not exist; the message says what to write where."""

"""The records of a run: the result of each test.

They flow unchanged from the engine to the board, the gradebook and the report. Nothing here imports torch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The outcome of a test. Only `PASSED` earns points; `ERROR` is the grader's: it is retried, and never a grade."""

    PASSED = "passed"
    FAILED = "failed"
    VIOLATION = "violation"
    ERROR = "error"
    NOT_RUN = "not run"


class Check(StrEnum):
    """What a test was checking when it failed."""

    CALL = "call"  # the student's code raised, or was stopped
    NOT_WRITTEN = "not written"
    ANSWER = "answer"
    OUTPUT = "output"  # another output than the first one
    GRADIENT = "gradient"
    INPUTS = "inputs"
    PROPERTY = "property"


# The types of the fields of a result that have another type in JSON.
KINDS: dict[str, Callable[[Any], Any]] = {
    "outcome": Outcome,
    "check": Check,
    **dict.fromkeys(("details", "on_paper", "inputs"), tuple),
    "functions": lambda pairs: tuple(map(tuple, pairs)),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test of one submission."""

    test: str  # the test function, with its test case in brackets
    problem: str  # the id of its problem
    hidden: bool  # whether students must not learn its inputs
    bonus: bool  # whether its points come on top of the maximum
    maximum: float  # the points that it is worth
    outcome: Outcome
    check: Check | None = None  # what the test was checking when it failed
    headline: str = ""  # why it failed, in one sentence that quotes no input and no expected output
    details: tuple[str, ...] = ()  # the numbers, or the student's own lines
    on_paper: tuple[str, ...] = ()  # the smallest wrong row, for when nothing better is known
    inputs: tuple[str, ...] = ()  # describe the test case
    see: str = ""  # the command that shows the call line by line
    kind: str = ""  # the headline without what depends on the output, such as its shape; "" if they are the same
    place: str = ""  # the student's innermost line that an exception went through, such as "adapters.py:3"
    raised: str = ""  # the name of the exception's class, if the student's code raised
    # The student's functions that the exception went through, as file and name, the innermost last. If something is
    # not written yet, the last one is to be written.
    functions: tuple[tuple[str, str], ...] = ()
    staff: str = ""  # for staff alone
    calls: int = 0  # of adapters
    seconds: float = 0.0  # of processor time

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def is_wrong(self) -> bool:
        """Tell whether the code is written, and failed."""
        return self.outcome is Outcome.FAILED and self.check is not Check.NOT_WRITTEN

    @property
    def points(self) -> float:
        return self.maximum if self.passed else 0.0

    @property
    def function(self) -> str:
        """The test function alone."""
        return name_function(self.test)

    @property
    def text(self) -> str:
        """Everything that the student may read about a failure."""
        return "\n".join((self.headline, *self.details, *self.on_paper, *self.about_case))

    @property
    def about_case(self) -> tuple[str, ...]:
        """The description of the test case, and the command that shows the call line by line."""
        return (*self.inputs, "", self.see) if self.see else self.inputs

    def as_json(self) -> str:
        """One line, which `result_from_json` reads; fields with their default value are left out."""
        changed = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return json.dumps(changed, ensure_ascii=False)


def name_function(test: str) -> str:
    """The test function of a test, without its test case."""
    return test.partition("[")[0]


def result_from_json(line: str | bytes) -> Result:
    """Read a result that `Result.as_json` wrote, and restore the types that JSON lacks."""
    written: dict[str, Any] = json.loads(line)
    return Result(**written | {name: kind(written[name]) for name, kind in KINDS.items() if name in written})

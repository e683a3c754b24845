"""The records of a run: what became of each test, and what explains the failures.

They flow unchanged from the engine to the board, the gradebook and the report. Nothing here imports torch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Only `PASSED` earns points. `ERROR` is a fault of the grader: retried, and never a grade."""

    PASSED = "passed"
    FAILED = "failed"
    VIOLATION = "violation"
    ERROR = "error"
    NOT_RUN = "not run"


class Check(StrEnum):
    """The part of an answer that a test was looking at when it failed."""

    CALL = "call"  # the student's code raised, or was stopped
    NOT_WRITTEN = "not written"
    ANSWER = "answer"
    OUTPUT = "output"  # what an adapter gives beside its answer
    GRADIENT = "gradient"
    INPUTS = "inputs"
    PROPERTY = "property"


# Of the fields of a result that are something else in JSON.
KINDS: dict[str, Callable[[Any], Any]] = {
    "outcome": Outcome,
    "check": Check,
    **dict.fromkeys(("details", "on_paper", "inputs"), tuple),
    "functions": lambda pairs: tuple(map(tuple, pairs)),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One test of one submission.

    Args:
        test: the test function, with its case in brackets.
        problem: the id of its problem.
        hidden: whether students must not learn its inputs.
        bonus: whether its points come on top of the maximum.
        maximum: the points that it is worth.
        outcome: what became of it.
        check: what failed.
        headline: why it failed, in one sentence that quotes no input and no right answer.
        details: the numbers, or the student's own lines.
        on_paper: the smallest wrong row, for when nothing better is known.
        inputs: what the case is.
        see: the command that looks into the call.
        kind: the headline without what an answer chose of it, such as its shape; "" if that is the headline.
        place: the innermost line of the student's that an exception went through, such as "adapters.py:3".
        raised: the type's name, if an exception of the student's code ended the test.
        functions: the student's functions that it went through, as file and name, the innermost last; of what is not
            written, the last is what to write.
        staff: what only staff may read.
        calls: how many calls of adapters it made.
        seconds: of processor time.
    """

    test: str
    problem: str
    hidden: bool
    bonus: bool
    maximum: float
    outcome: Outcome
    check: Check | None = None
    headline: str = ""
    details: tuple[str, ...] = ()
    on_paper: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    see: str = ""
    kind: str = ""
    place: str = ""
    raised: str = ""
    functions: tuple[tuple[str, str], ...] = ()
    staff: str = ""
    calls: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def is_wrong(self) -> bool:
        """Tell whether something is written, and failed."""
        return self.outcome is Outcome.FAILED and self.check is not Check.NOT_WRITTEN

    @property
    def points(self) -> float:
        return self.maximum if self.passed else 0.0

    @property
    def function(self) -> str:
        """The test function alone."""
        return function_of(self.test)

    @property
    def text(self) -> str:
        """Everything that the student may read about a failure."""
        return "\n".join((self.headline, *self.details, *self.on_paper, *self.about_case))

    @property
    def about_case(self) -> tuple[str, ...]:
        """What the case is, and the command that looks into the call."""
        return (*self.inputs, "", self.see) if self.see else self.inputs

    def as_json(self) -> str:
        """One line, which `result_from_json` reads; what is as a passed test has it is left out."""
        told = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return json.dumps(told, ensure_ascii=False)


def function_of(test: str) -> str:
    """The test function of a test, without its case."""
    return test.partition("[")[0]


def result_from_json(line: str | bytes) -> Result:
    """The result that `Result.as_json` wrote, of which JSON has made texts and lists."""
    written: dict[str, Any] = json.loads(line)
    return Result(**written | {name: kind(written[name]) for name, kind in KINDS.items() if name in written})

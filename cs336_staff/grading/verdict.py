"""What became of one test of one submission."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "violation", "error"]


@dataclass(frozen=True)
class Verdict:
    """Written by the trusted side, for every planned test.

    Args:
        name: of the planned test.
        outcome: `passed`; `failed`, by the student's doing; `violation`, of the rules; `error`, by ours.
        seconds: how long the test took.
        message: why it did not pass, for the student: of a hidden test without any value of its inputs or answers.
        details: the same for staff, with everything that is known.
    """

    name: str
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    details: str = ""

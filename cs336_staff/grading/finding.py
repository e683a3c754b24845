"""An explanation of an examination in its parts."""

import re
from dataclasses import dataclass
from typing import Self

from cs336_kit.engine.result import Explanation

THINK, READ = "  Think: ", "  Read:  "

POINTING = re.compile("(That|This|It|They|These|Those) ")  # the subject is in the sentence before
ASIDE = "A program that is right but for this mistake "


@dataclass(frozen=True)
class Finding:
    """An explanation of an examination in its parts.

    Args:
        problem: the id of the problem.
        id: which fact it is.
        said: what was measured, and what that says about the code.
        code: the student's own lines, where something raised.
        question: what a tutor would ask.
        read: where it is explained: "docs/assignment.md, section 3 Attention".
        tests: which of those that fail it explains.
    """

    problem: str
    id: str
    said: tuple[str, ...]
    code: tuple[str, ...]
    question: str
    read: str
    tests: tuple[str, ...]

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Take the lines apart; the reference is the last one that looks like it, whatever the student's look like."""
        end = max((i + 1 for i, line in enumerate(explanation.lines) if line.startswith(READ)), default=None)
        lines, tests = list(explanation.lines[:end]), explanation.lines[end:] if end else ()
        read = lines.pop().removeprefix(READ) if lines and lines[-1].startswith(READ) else ""
        question = lines.pop().removeprefix(THINK) if lines and lines[-1].startswith(THINK) else ""
        said = tuple(line for line in lines if not line.startswith("  "))
        code = tuple(line.removeprefix("  ") for line in lines if line.startswith("  "))
        return cls(explanation.problem, explanation.id, said, code, question, read, tests)

    @property
    def short(self) -> str:
        """Say what it means for the code in a sentence, with the one before it where that has the subject."""
        said = [each for line in self.said for each in re.split(r"(?<=[.?!]) (?=[A-Z])", line)]
        said = [each for each in said if not each.startswith(ASIDE)]
        means = next((i for i, each in enumerate(said) if self.said[-1].startswith(each)), 0)
        first = means
        while first and POINTING.match(said[first]):
            first -= 1
        return " ".join(said[first : means + 1]) or self.id

    @property
    def runs(self) -> bool:
        """Tell whether any call works: if none does, nothing was measured that could be taught."""
        return not self.id.endswith("-fails")

    @property
    def section(self) -> str:
        """Number and title: "3 Attention"."""
        return self.read.partition(", section ")[2]

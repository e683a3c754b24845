"""Findings: each is the record of one mistake in a student's code, for the screen and for the gradebook.

Nothing here imports torch.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

THINK, READ = "  Think: ", "  Read:  "
MODULE = "<module>"  # Python's name for the lines of a file that run when it is imported
WIDTH = 64  # of a line of code: with the board's indent it fits into 80 columns


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in one problem, or in one function of a plain suite."""

    problem: str  # the id of the problem; in a plain suite the function with its module, or "" if it is not known
    id: str  # names the mistake; it is the same for everyone who made it
    said: tuple[str, ...]  # what was measured and what follows from it, in sentences
    file: str = ""  # its path as the student knows it, or "" if no position is known
    line: int = 0  # the first line of the expression
    function: str = ""  # that holds the expression; `MODULE` if the mistake prevents the import of the file
    columns: tuple[int, int] = (0, 0)  # where the expression begins and ends in that line, from 0, the end excluded
    code: tuple[str, ...] = ()  # the student's lines, with a mark below the expression
    likewise: tuple[int, ...] = ()  # other lines that are wrong for the same reason
    proof: str = ""  # which of the failing tests this explains, in words; "" for the first of two expressions
    question: str = ""  # what a tutor would ask
    section: str = ""  # the section of the handout, "1 Standardize" or "1"
    tests: tuple[str, ...] = ()  # the failing tests that it explains, or at least concerns
    step: str = ""  # the name of the checkpoint that belongs there, if there is one
    also: tuple[str, ...] = ()  # failing tests of other problems that lead to the same expression, in words
    repeats: tuple[str, ...] = ()  # the ids of the findings about earlier problems that explain these tests, too

    @property
    def is_of_earlier(self) -> bool:
        """Tell whether a finding about an earlier problem already reports this mistake."""
        return bool(self.repeats)

    @property
    def lines(self) -> list[str]:
        """The lines that a student reads: the code, what is wrong, the proof, a question, and what to read."""
        lines = [*self.code, *self.said]
        if self.likewise:
            *others, last = map(str, self.likewise)
            before = f"s {', '.join(others)} and" if others else ""
            lines.append(f"Likewise in line{before} {last}.")
        if self.proof:
            lines.append(self.proof)
        if self.also:
            others = f"failing tests of {len(self.also)} other problems"
            lines.append(f"It also explains {self.also[0] if len(self.also) == 1 else others}.")
        if self.question:
            lines.append(f"{THINK}{self.question}")
        if self.section:
            lines.append(f"{READ}{self.read}")
        return lines

    @property
    def read(self) -> str:
        """What to read: "docs/assignment.md, section 1 Standardize"."""
        page = "bonus" if self.section.startswith("B") else "assignment"
        return f"docs/{page}.md, section {self.section}" if self.section else ""

    def as_json(self) -> str:
        """One line, which `from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Read a finding that `as_json` wrote; JSON has turned its tuples into lists."""
        written: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in json.loads(line).items()}
        return cls(**written)


def mark(code: str, start: int, end: int) -> tuple[str, str]:
    """A line of code without its indentation, and a line that marks an expression in it.

    A line that is wider than the screen is cut to the part around the expression.
    """
    indent = len(code) - len(code.lstrip())
    code, start, end = code[indent:], start - indent, end - indent
    if len(code) > WIDTH and end > WIDTH - 2:
        first = min(start, max(0, end - WIDTH + 4))
        first = min(start, code.find(" ", first) + 1) or first  # where a word begins
        code, start, end = "… " + code[first:], start - first + 2, end - first + 2
    if len(code) > WIDTH:
        code = code[: WIDTH - 2] + " …"
    return f"    {code}", f"    {' ' * start}{'^' * max(min(end, len(code)) - start, 1)}"

"""Findings: what is told of a place, as a record and as lines."""

import linecache
from dataclasses import dataclass

WIDTH = 64  # of a line of code, so that it fits into 80 columns where the board indents it


@dataclass(frozen=True)
class Finding:
    """One place in the student's code, and what is wrong there.

    Args:
        file: as the student knows it.
        line: the first one of the expression.
        function: in which it is.
        columns: of the expression in that line, from 0, the end excluded.
        code: the line.
        difference: of the value from what it should be, a sentence.
        proof: which of the failing tests pass with the right value there; "" of the first of two places.
        likewise: other lines that are wrong for the same reason.
        question: what a tutor would ask.
        section: of the handout.
        says_all: whether all failing tests pass with what is told, and the difference needs no other words.
    """

    file: str
    line: int
    function: str
    columns: tuple[int, int]
    code: str
    difference: str
    proof: str = ""
    likewise: tuple[int, ...] = ()
    question: str = ""
    section: str = ""
    says_all: bool = False


def render(finding: Finding) -> list[str]:
    """The lines that a student reads: place, code, difference, proof, and unless it is "" a question."""
    code, start, end = _cut(finding.code, *finding.columns)
    lines = [
        f"{finding.file}:{finding.line}, in {finding.function}",
        f"    {code}",
        f"    {' ' * start}{'^' * max(end - start, 1)}",
        finding.difference,
    ]
    if finding.likewise:
        lines.append(f"Likewise in line{'s' * (len(finding.likewise) > 1)} {_list(finding.likewise)}.")
    if finding.proof:
        lines.append(finding.proof)
    if finding.question:
        lines.append(f"  Think: {finding.question}")
    if finding.section:
        lines.append(f"  Read:  docs/assignment.md, section {finding.section}")
    return lines


def read_line(file: str, line: int) -> str:
    """A line of a source file, without its end."""
    return linecache.getline(file, line).rstrip("\n")


def _cut(code: str, start: int, end: int) -> tuple[str, int, int]:
    """A line without its indentation, and no wider than the screen; of a long one, where the expression is."""
    indent = len(code) - len(code.lstrip())
    code, start, end = code[indent:], start - indent, end - indent
    if len(code) > WIDTH and end > WIDTH - 2:
        first = min(start, max(0, end - WIDTH + 4))
        first = min(start, code.find(" ", first) + 1) or first  # where a word begins
        code, start, end = "… " + code[first:], start - first + 2, end - first + 2
    if len(code) > WIDTH:
        code = code[: WIDTH - 2] + " …"
    return code, start, min(end, len(code))


def _list(lines: tuple[int, ...]) -> str:
    *others, last = map(str, lines)
    return f"{', '.join(others)} and {last}" if others else last

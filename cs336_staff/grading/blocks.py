"""Texts of a submission in Markdown: cut where they are long, as code that nothing in them can end."""

import re
from collections.abc import Sequence

from cs336_staff.sandbox.printable import printable

MAX_MESSAGE = 4_000
# Lines of an exception, and of numbers and printed text; letters of a line of code: what students take in.
MAX_BLOCK, MAX_DUMP, MAX_LINE = 24, 12, 200


def make_printable(message: str) -> str:
    """The message as it can be printed anywhere, cut off where it is too long to be read."""
    text = printable(message[: MAX_MESSAGE + 1])
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "\n(cut off)"


def fence_lines(lines: Sequence[str]) -> list[str]:
    """A code block that nothing in its lines can end."""
    fence = "`" * max(3, 1 + _longest_fence("\n".join(lines)))
    return [f"{fence}text", *lines, fence]


def cut_block(text: str, most: int = MAX_BLOCK) -> list[str]:
    """The lines of a text, as many as students take in."""
    lines = make_printable(text).splitlines()
    more = [f"({len(lines) - most} more lines)"] if len(lines) > most else []
    return lines[:most] + more


def quote_code(text: str) -> str:
    """A line of code that nothing in `text` can end."""
    fence = "`" * (1 + _longest_fence(text))
    line = " ".join(printable(text).split())[:MAX_LINE]
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _longest_fence(text: str) -> int:
    """Of the runs of backticks."""
    return max(map(len, re.findall(r"`+", text)), default=0)

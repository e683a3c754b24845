"""A failure in pytest's form: pytest uses `toterminal`, and the position and the message of `reprcrash`."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

from whichline.checking.board import wrap_lines

WIDTH = 78  # of pytest's output


class Place(NamedTuple):
    """The position of a test and why it failed, under the names that pytest uses."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class Text:
    """An explanation of a failure, which pytest prints."""

    def __init__(self, headline: str, details: Iterable[str], place: tuple[str, int]) -> None:
        self.headline, self.details = headline, details
        self.reprcrash = Place(*place, headline)

    def __str__(self) -> str:
        printed: list[str] = []
        self.toterminal(SimpleNamespace(line=lambda line="", **_: printed.append(line)))
        return "\n".join(printed)

    def toterminal(self, tw: Any) -> None:
        for line in wrap_lines([self.headline], WIDTH):
            tw.line(line.strip(), red=True, bold=True)
        for line in wrap_lines(self.details, WIDTH, "  "):
            tw.line(line)

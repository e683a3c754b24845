"""What went wrong, as pytest takes it: it asks for `toterminal`, and for the place and the message of `reprcrash`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from whichline.checking.board import wrapped
from whichline.checking.short_failures import WIDTH


class Place(NamedTuple):
    """The place of a test, with why it failed, where pytest looks for them."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class Printed(list[str]):
    """Stands in for a terminal of pytest's, and keeps its lines."""

    def line(self, line: str = "", **_: bool) -> None:
        self.append(line)


class Text:
    """An explanation of what went wrong, which pytest prints."""

    def __init__(self, headline: str, details: Iterable[str], place: tuple[str, int]) -> None:
        self.headline = headline
        self.details = details
        self.reprcrash = Place(*place, headline)

    def __str__(self) -> str:
        printed = Printed()
        self.toterminal(printed)
        return "\n".join(printed)

    def toterminal(self, tw: Any) -> None:
        """Print it, as pytest asks for it."""
        for line in wrapped([self.headline], WIDTH):
            tw.line(line.strip(), red=True, bold=True)
        for line in wrapped(self.details, WIDTH, "  "):
            tw.line(line)

"""Attention in the terminal: a heatmap, the shaded text, and a sentence for each token."""

import math
from collections.abc import Iterator

from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from cs336_kit.lab.picture import DARK, HIGH, LOW, NOT_A_NUMBER, Pattern, Picture, in_words, printable

LABEL = 14  # columns for a token beside its row
GAP = 2
SHADES = " ░▒▓█"
SENTENCES = 20  # of a pattern; a longer text is for a page


class Heatmaps:
    """A picture, as rich prints it: as many patterns side by side as there is room for.

    A weight is a percentage, on a colour where the terminal has enough of them, or a shade alone where the text is too
    long for that.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._largest = picture.largest
        self._labels = [f"{place} {printable(token)}" for place, token in enumerate(picture.tokens)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._coloured = console.color_system in ("256", "truecolor")
        tokens, patterns = self._picture.tokens, self._picture.patterns
        margin = min(LABEL, max(Text(label).cell_len for label in self._labels)) + 1
        room = options.max_width - margin
        cell = next((cell for cell in (3, 1) if cell * len(tokens) <= room), None)
        if cell is None:
            yield f"{len(tokens):,} tokens do not fit into this terminal; a page shows them: -o page.html"
        else:
            abreast = max(1, (room + GAP) // (cell * len(tokens) + GAP))
            for start in range(0, len(patterns), abreast):
                if start:
                    yield Text("")
                yield from self._row(patterns[start : start + abreast], margin, cell)
        for pattern in patterns:
            yield Text(f"\n{pattern.title}", "bold")
            if cell is not None:
                yield self._shaded_text(pattern)
            yield from self._sentences(pattern)
        for line in (*self._picture.warnings(), *self._picture.notes):
            yield Text(f"\n{printable(line)}")

    def _row(self, patterns: list[Pattern], margin: int, cell: int) -> Iterator[Text]:
        size = len(self._picture.tokens)
        width = cell * size
        titles = (_cut(pattern.title, width) for pattern in patterns)
        yield Text(" " * margin) + Text(" " * GAP).join(Text(title.plain, "bold") for title in titles)
        if cell > 1:
            numbers = "".join(f"{place:>{cell}}" for place in range(size))
            yield Text(" " * margin + (" " * GAP).join([numbers] * len(patterns)), "dim")
        for query, label in enumerate(self._labels):
            line = _cut(label, margin - 1) + Text(" ")
            cells = (Text.assemble(*(self._cell(x, cell) for x in p.weights[query].tolist())) for p in patterns)
            yield line + Text(" " * GAP).join(cells)

    def _cell(self, weight: float, width: int) -> tuple[str, Style]:
        known = not math.isnan(weight)
        if width == 1:
            return (SHADES[round(_share(weight, self._largest) * (len(SHADES) - 1))] if known else "!"), Style()
        percent = f"{min(999.0, max(-99.0, 100 * weight)):3.0f}" if known else "NaN"
        return percent, self._style(weight, self._largest)

    def _style(self, weight: float, largest: float) -> Style:
        if not self._coloured:
            return Style()
        if math.isnan(weight):
            return Style(color="#000000", bgcolor=NOT_A_NUMBER)
        share = _share(weight, largest)
        ground = blend_rgb(_rgb(LOW), _rgb(HIGH), share)
        return Style(color="#ffffff" if share > DARK else "#000000", bgcolor=Color.from_triplet(ground))

    def _shaded_text(self, pattern: Pattern) -> Text:
        """The text; the darker a token, the more attention it gets from all."""
        received = pattern.weights.sum(0).tolist()
        tokens = zip(self._picture.tokens, received, strict=True)
        return Text(" ").join(Text(printable(token), self._style(x, max(received))) for token, x in tokens)

    def _sentences(self, pattern: Pattern) -> Iterator[Text]:
        tokens = [printable(token) for token in self._picture.tokens]
        for place, sentence in enumerate(in_words(tokens, pattern.weights)):
            if place == SENTENCES:
                yield Text(f"  and {len(tokens) - SENTENCES:,} more tokens, which a page has: -o page.html")
                return
            yield Text(f"  {sentence}")


def _share(weight: float, largest: float) -> float:
    return min(1.0, max(0.0, weight / largest)) if largest > 0.0 else 0.0


def _cut(text: str, width: int) -> Text:
    cut = Text(text)
    cut.truncate(width, overflow="ellipsis", pad=True)
    return cut


def _rgb(colour: str) -> ColorTriplet:
    return Color.parse(colour).get_truecolor()

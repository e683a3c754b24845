"""Attention in the terminal: a heatmap, the shaded text, and a sentence for each token."""

import math
from collections.abc import Iterator

from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from cs336_kit.lab.picture import DARK, HIGH, LOW, NOT_A_NUMBER, Pattern, Picture, printable

LABEL = 14  # columns for a token beside its row
GAP = 2
SHADES = " ░▒▓█"
HIDDEN = "·"
SENTENCES = 20  # of a pattern; a longer text is for a page


class Heatmaps:
    """A picture, as rich prints it: as many patterns side by side as there is room for.

    A weight is a percentage, on a colour where the terminal has enough of them, or a shade alone where the text is too
    long for that.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._scale = picture.scale
        self._labels = _labels(picture.queries)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._coloured = console.color_system in ("256", "truecolor")
        picture, patterns = self._picture, self._picture.patterns
        margin = min(LABEL, max(Text(label).cell_len for label in self._labels)) + 1
        room = options.max_width - margin
        size = len(picture.keys)
        cell = next((cell for cell in (3, 1) if cell * size <= room), None)
        if cell is None:
            yield f"{size:,} tokens do not fit into this terminal; a page shows them: -o page.html"
        else:
            width = min(room, max(cell * size, *(len(pattern.title) for pattern in patterns)))
            abreast = max(1, (room + GAP) // (width + GAP))
            for start in range(0, len(patterns), abreast):
                if start:
                    yield Text("")
                yield from self._row(patterns[start : start + abreast], margin, cell, width)
            yield Text("")
            if picture.queries != picture.keys:
                yield Padding(Text("columns: " + ", ".join(_labels(picture.keys))), (0, 0, 0, 2))
            yield Padding(Text(self._legend(cell), "dim"), (0, 0, 0, 2))
        for pattern in patterns:
            yield Text(f"\n{pattern.title}", "bold")
            if cell is not None:
                yield self._shaded_text(pattern)
            yield from self._sentences(pattern)
        for line in (*picture.warnings(), *picture.notes):
            yield Text(f"\n{printable(line)}")

    def _legend(self, cell: int) -> str:
        """Say what a reader of the maps has to know."""
        parts = ["rows ask, columns are looked at"]
        parts.append("in percent" if cell > 1 else f"{SHADES[-1]} is {self._scale:.0%}")
        if any(pattern.hidden is not None for pattern in self._picture.patterns):
            parts.append(f"{HIDDEN} hidden by the mask")
        return "; ".join(parts)

    def _row(self, patterns: list[Pattern], margin: int, cell: int, width: int) -> Iterator[Text]:
        size = len(self._picture.keys)
        yield Text(" " * margin) + Text(" " * GAP).join(Text(_cut(p.title, width).plain, "bold") for p in patterns)
        fill = " " * (width - cell * size + GAP)
        if cell > 1:
            numbers = "".join(f"{place:>{cell}}" for place in range(size))
            yield Text(" " * margin + fill.join([numbers] * len(patterns)), "dim")
        for query, label in enumerate(self._labels):
            line = _cut(label, margin - 1) + Text(" ")
            cells = (Text.assemble(*self._cells(pattern, query, cell)) for pattern in patterns)
            yield line + Text(fill).join(cells)

    def _cells(self, pattern: Pattern, query: int, width: int) -> Iterator[tuple[str, Style]]:
        row = pattern.weights[query].tolist()
        hidden = [False] * len(row) if pattern.hidden is None else pattern.hidden[query].tolist()
        for weight, is_hidden in zip(row, hidden, strict=True):
            if is_hidden and weight == 0.0:
                yield f"{HIDDEN:>{width}}", Style(dim=True)
            else:
                yield self._cell(weight, width)

    def _cell(self, weight: float, width: int) -> tuple[str, Style]:
        known = not math.isnan(weight)
        if width == 1:
            return (SHADES[round(self._share(weight) * (len(SHADES) - 1))] if known else "!"), Style()
        percent = f"{min(999.0, max(-99.0, 100 * weight)):3.0f}" if known else "NaN"
        return percent, self._style(weight)

    def _style(self, weight: float) -> Style:
        if not self._coloured:
            return Style()
        if math.isnan(weight):
            return Style(color="#000000", bgcolor=NOT_A_NUMBER)
        share = self._share(weight)
        ground = blend_rgb(_rgb(LOW), _rgb(HIGH), share)
        return Style(color="#ffffff" if share > DARK else "#000000", bgcolor=Color.from_triplet(ground))

    def _share(self, weight: float) -> float:
        return min(1.0, max(0.0, weight / self._scale))

    def _shaded_text(self, pattern: Pattern) -> Text:
        """The text; the darker a token, the more attention it gets on average, on the scale of the maps."""
        tokens = zip(self._picture.keys, pattern.weights.mean(0).tolist(), strict=True)
        return Text(" ").join(Text(printable(token), self._style(x)) for token, x in tokens)

    def _sentences(self, pattern: Pattern) -> Iterator[Padding]:
        for place, sentence in enumerate(self._picture.sentences(pattern, printable)):
            if place == SENTENCES:
                more = len(self._picture.queries) - SENTENCES
                yield Padding(f"and {more:,} more tokens, which a page has: -o page.html", (0, 0, 0, 2))
                return
            yield Padding(Text(sentence), (0, 0, 0, 2))


def _labels(tokens: list[str]) -> list[str]:
    return [f"{place} {printable(token)}" for place, token in enumerate(tokens)]


def _cut(text: str, width: int) -> Text:
    cut = Text(text)
    cut.truncate(width, overflow="ellipsis", pad=True)
    return cut


def _rgb(colour: str) -> ColorTriplet:
    return Color.parse(colour).get_truecolor()

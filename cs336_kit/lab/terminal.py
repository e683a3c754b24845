"""Attention in the terminal: a heatmap, the shaded text, and a sentence for each token."""

import math
from collections.abc import Iterator

from rich.color import Color, blend_rgb
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from cs336_kit.lab.picture import DARK, HIGH, LOW, NOT_A_NUMBER, Pattern, Picture, make_printable

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
        self._labels = _number_tokens(picture.queries)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._coloured = console.color_system in ("256", "truecolor")
        picture, patterns = self._picture, self._picture.patterns
        margin = min(LABEL, max(Text(label).cell_len for label in self._labels)) + 1
        room = options.max_width - margin
        size = len(picture.keys)
        numbers = [str(size - 1), *map(_percent, picture.weights.flatten().tolist())] if 3 * size <= room else []
        wide = max(3, 1 + max(map(len, numbers), default=0))
        cell = next((cell for cell in (wide, 1) if cell * size <= room), None)
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
                yield Padding(Text("columns: " + ", ".join(_number_tokens(picture.keys))), (0, 0, 0, 2))
            scale = "in percent" if cell > 1 else f"{SHADES[-1]} is {self._scale:.0%}"
            mask = f"; {HIDDEN} hidden by the mask" if picture.hidden.any() else ""
            yield Padding(Text(f"rows ask, columns are looked at; {scale}{mask}", "dim"), (0, 0, 0, 2))
        for pattern in patterns:
            yield Text(f"\n{pattern.title}", "bold")
            if cell is not None:
                yield self._shaded_text(pattern)
            yield from self._sentences(pattern)
        for line in (*picture.warnings(), *picture.notes):
            yield Text(f"\n{make_printable(line)}")

    def _row(self, patterns: list[Pattern], margin: int, cell: int, width: int) -> Iterator[Text]:
        size = len(self._picture.keys)
        yield Text(" " * margin) + Text(" " * GAP).join(Text(_fit(p.title, width).plain, "bold") for p in patterns)
        fill = " " * (width - cell * size + GAP)
        if cell > 1:
            numbers = "".join(f"{place:>{cell}}" for place in range(size))
            yield Text(" " * margin + fill.join([numbers] * len(patterns)), "dim")
        for query, label in enumerate(self._labels):
            line = _fit(label, margin - 1) + Text(" ")
            cells = (Text.assemble(*self._cells(pattern, query, cell)) for pattern in patterns)
            yield line + Text(fill).join(cells)

    def _cells(self, pattern: Pattern, query: int, width: int) -> Iterator[tuple[str, Style]]:
        for weight, hidden in zip(pattern.weights[query].tolist(), pattern.hidden[query].tolist(), strict=True):
            if hidden and weight == 0.0:
                yield f"{HIDDEN:>{width}}", Style(dim=True)
            elif width > 1:
                yield f"{_percent(weight):>{width}}", self._style(weight)
            else:
                yield "!" if math.isnan(weight) else SHADES[round(self._share(weight) * (len(SHADES) - 1))], Style()

    def _style(self, weight: float) -> Style:
        if not self._coloured:
            return Style()
        if math.isnan(weight):
            return Style(color="#000000", bgcolor=NOT_A_NUMBER)
        share = self._share(weight)
        low, high = (Color.parse(colour).get_truecolor() for colour in (LOW, HIGH))
        return Style(
            color="#ffffff" if share > DARK else "#000000", bgcolor=Color.from_triplet(blend_rgb(low, high, share))
        )

    def _share(self, weight: float) -> float:
        return min(1.0, max(0.0, weight / self._scale))

    def _shaded_text(self, pattern: Pattern) -> Text:
        """The text; the darker a token, the more attention it gets on average, on the scale of the maps."""
        tokens = zip(self._picture.keys, pattern.weights.mean(0).tolist(), strict=True)
        return Text(" ").join(Text(make_printable(token), self._style(x)) for token, x in tokens)

    def _sentences(self, pattern: Pattern) -> Iterator[Padding]:
        for place, sentence in enumerate(self._picture.sentences(pattern, make_printable)):
            if place == SENTENCES:
                more = len(self._picture.queries) - SENTENCES
                yield Padding(f"and {more:,} more tokens, which a page has: -o page.html", (0, 0, 0, 2))
                return
            yield Padding(Text(sentence), (0, 0, 0, 2))


def _percent(weight: float) -> str:
    return "NaN" if math.isnan(weight) else f"{min(999.0, max(-99.0, 100 * weight)):.0f}"


def _number_tokens(tokens: list[str]) -> list[str]:
    return [f"{place} {make_printable(token)}" for place, token in enumerate(tokens)]


def _fit(text: str, width: int) -> Text:
    cut = Text(text)
    cut.truncate(width, overflow="ellipsis", pad=True)
    return cut

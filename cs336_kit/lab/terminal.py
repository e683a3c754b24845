"""Attention in the terminal: a heatmap, and a sentence for each token."""

import math
from collections.abc import Iterator

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.picture import NOT_A_NUMBER, Pattern, Picture, choose_ink, make_printable

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
        self._labels = _number_tokens(picture.queries)
        # There are few shades: they are spread over the weights that there are.
        self._darkest = min(picture.vmax, float(picture.weights.nan_to_num(0.0, 0.0, 0.0).amax().clamp(min=0.01)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._coloured = console.color_system in ("256", "truecolor")
        picture, patterns = self._picture, self._picture.patterns
        room = options.max_width - GAP - min(LABEL, max(Text(label).cell_len for label in self._labels))
        size = len(picture.keys)
        numbers = [str(size - 1), *map(picture.write, picture.weights.flatten().tolist())] if 3 * size <= room else []
        wide = max(3, 1 + max(map(len, numbers), default=0))
        cell = next((cell for cell in (wide, 1) if cell * size <= room), None)
        if picture.title:
            yield Text(make_printable(picture.title), "bold")
        if cell is None:
            yield f"{size:,} tokens do not fit into this terminal; a page shows them: -o page.html"
        else:
            abreast = max(1, (room + GAP) // (max(cell * size, *(len(p.title) for p in patterns)) + GAP))
            for start in range(0, len(patterns), abreast):
                yield self._row(patterns[start : start + abreast], cell)
                yield Text("")
            if picture.queries != picture.keys:
                yield Padding(Text("columns: " + ", ".join(_number_tokens(picture.keys))), (0, 0, 0, 2))
            shades = f"{SHADES[-1]} is {picture.write(self._darkest)}"
            unit = ", ".join([shades] * (cell == 1) + ["scores" if picture.scores else "in percent"])
            mask = f"; {HIDDEN} hidden by the mask" if picture.hidden.any() else ""
            yield Padding(Text(f"rows ask, columns are looked at; {unit}{mask}", "dim"), (0, 0, 0, 2))
        for pattern in () if picture.scores else patterns:
            yield Text(f"\n{pattern.title}", "bold")
            yield from self._sentences(pattern)
        for line in (*picture.warnings(), *picture.notes):
            yield Text(f"\n{make_printable(line)}")

    def _row(self, patterns: list[Pattern], cell: int) -> RenderableType:
        table = Table.grid(padding=(0, GAP, 0, 0))
        table.add_column(max_width=LABEL, no_wrap=True)
        table.add_row("", *(Text(make_printable(pattern.title), "bold") for pattern in patterns))
        if cell > 1:
            numbers = "".join(f"{place:>{cell}}" for place in range(len(self._picture.keys)))
            table.add_row("", *[Text(numbers, "dim")] * len(patterns))
        for query, label in enumerate(self._labels):
            table.add_row(Text(label), *(Text.assemble(*self._cells(p, query, cell)) for p in patterns))
        return table

    def _cells(self, pattern: Pattern, query: int, width: int) -> Iterator[tuple[str, Style]]:
        for weight, hidden in zip(pattern.weights[query].tolist(), pattern.hidden[query].tolist(), strict=True):
            if hidden and weight == 0.0:
                yield f"{HIDDEN:>{width}}", Style(dim=True)
            elif width > 1:
                yield f"{self._picture.write(weight):>{width}}", self._style(weight)
            else:
                shade = np.interp(weight, (0.0, self._darkest), (0, len(SHADES) - 1))
                yield "!" if math.isnan(weight) else SHADES[round(float(shade))], Style()

    def _style(self, weight: float) -> Style:
        if not self._coloured:
            return Style()
        colours = [Color.parse(colour).get_truecolor() for colour in (*self._picture.colours[0], NOT_A_NUMBER)]
        *ramp, colour = colours
        if not math.isnan(weight):
            places = np.linspace(self._picture.vmin, self._picture.vmax, len(ramp))
            colour = [round(float(np.interp(weight, places, channel))) for channel in zip(*ramp, strict=True)]
        red, green, blue = colour
        return Style(color=choose_ink(red / 255, green / 255, blue / 255), bgcolor=Color.from_rgb(red, green, blue))

    def _sentences(self, pattern: Pattern) -> Iterator[Padding]:
        for place, sentence in enumerate(self._picture.sentences(pattern, make_printable)):
            if place == SENTENCES:
                more = len(self._picture.queries) - SENTENCES
                yield Padding(f"and {more:,} more tokens, which a page has: -o page.html", (0, 0, 0, 2))
                return
            yield Padding(Text(sentence), (0, 0, 0, 2))


def _number_tokens(tokens: list[str]) -> list[str]:
    return [
        make_printable(token) if token == str(p) else f"{p} {make_printable(token)}" for p, token in enumerate(tokens)
    ]

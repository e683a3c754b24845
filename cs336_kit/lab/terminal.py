"""A heat map in the terminal: percentages, on colours where the terminal has enough of them."""

from collections.abc import Iterator

from rich.color import Color
from rich.columns import Columns
from rich.console import RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.heatmap import Heatmap

LABEL = 14  # columns for a token beside its row
HIDDEN = "·"


def tabulate(heatmap: Heatmap, width: int, coloured: bool) -> Iterator[RenderableType]:
    """As many maps side by side as there is room for in this many columns."""
    size = len(heatmap.keys)
    cell = 1 + max(map(len, (str(size - 1), *map(heatmap.write, heatmap.maps.flatten().tolist()))))
    if LABEL + cell * size > width:
        yield f"{size:,} keys do not fit into this terminal; a figure shows them: -o figure.png"
        return
    yield Columns([_tabulate_map(heatmap, place, cell, coloured) for place in range(len(heatmap.maps))], padding=(1, 2))
    if heatmap.queries != heatmap.keys:
        yield Text("columns: " + ", ".join(_number_tokens(heatmap.keys)))
    mask = f"; {HIDDEN} hidden by the mask" if heatmap.hidden.any() else ""
    yield Text(f"rows are queries, columns are keys; {'scores' if heatmap.scores else 'in percent'}{mask}", "dim")


def _tabulate_map(heatmap: Heatmap, place: int, width: int, coloured: bool) -> Table:
    table = Table(box=None, padding=0, title=Text(heatmap.titles[place]), header_style="dim")
    table.add_column(max_width=LABEL, no_wrap=True)
    for key in range(len(heatmap.keys)):
        table.add_column(str(key), justify="right", width=width)
    numbers, hidden = heatmap.maps[place].tolist(), heatmap.hidden[place].tolist()
    for label, row, hides in zip(_number_tokens(heatmap.queries), numbers, hidden, strict=True):
        cells = []
        for x, is_hidden in zip(row, hides, strict=True):
            ground, ink = heatmap.paint(x)
            style = Style(color=ink, bgcolor=Color.from_rgb(*(255 * part for part in ground))) if coloured else ""
            cells.append(Text(HIDDEN) if is_hidden and not x else Text(heatmap.write(x), style))
        table.add_row(Text(label), *cells)
    return table


def _number_tokens(tokens: list[str]) -> list[str]:
    return [token if token == str(place) else f"{place} {token}" for place, token in enumerate(tokens)]

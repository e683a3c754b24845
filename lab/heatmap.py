"""A heat map of attention: maps on one scale of colours, which show themselves in a terminal and in a notebook."""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib import colormaps
from matplotlib.colors import Colormap, Normalize
from rich.color import Color
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

from lab.attention import read_tensor
from whichline.lab import BadInput

if TYPE_CHECKING:  # figures are imported when one is drawn: a terminal does not wait for them
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOT_A_NUMBER = "#d95f02"
LABEL = 14  # columns for a token beside its row
HIDDEN = "·"
LABELLED = 40  # more tokens have no room for their words
ABREAST = 4
HATCHED = {"facecolor": "white", "edgecolor": "#909090", "hatch": "///", "linewidth": 0}


@dataclass(frozen=True, repr=False)
class Heatmap:
    """Maps of weights, or of scores, side by side; `heatmap` makes one, and says what each part is."""

    maps: Float[Tensor, "maps queries keys"]
    hidden: Bool[Tensor, "maps queries keys"]
    queries: list[str]
    keys: list[str]
    titles: list[str]
    values: bool
    vmax: float
    scores: bool

    @cached_property
    def colours(self) -> Colormap:
        """White is a weight of 0; a score of 0 is white, too, between red and blue."""
        return colormaps["RdBu" if self.scores else "Blues"].with_extremes(bad=NOT_A_NUMBER)

    @cached_property
    def scale(self) -> Normalize:
        """From a number to its place among the colours, from 0 to 1."""
        return Normalize(-self.vmax if self.scores else 0.0, self.vmax, clip=True)

    def paint(self, x: float) -> tuple[tuple[float, float, float], str]:
        """The colour of a number, and the ink, black or white, that can be read on it."""
        red, green, blue, _ = self.colours(math.nan if math.isnan(x) else float(self.scale(x)))
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.179
        return (red, green, blue), "#000000" if light else "#ffffff"

    def write(self, x: float) -> str:
        """The number in a cell: a percentage, or a score."""
        if not math.isfinite(x):
            return "NaN" if math.isnan(x) else str(x)
        return f"{x:z.1f}" if self.scores else f"{100 * x:z.0f}"

    def save(self, path: Path | str) -> None:
        """Write the figure in the format that the suffix names, such as .png or .svg; BadInput if that cannot be."""
        try:
            draw_figure(self).savefig(path)
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        draw_figure(self).savefig(file, format="png")
        return file.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from tabulate(self, options.max_width, console.color_system in ("256", "truecolor"))

    def __repr__(self) -> str:
        # In a notebook, a console left to itself would display what is to be text.
        console = Console(width=80, file=io.StringIO(), color_system=None, force_jupyter=False)
        with console.capture() as text:
            console.print(self)
        return text.get().rstrip()


def heatmap(
    weights: Any,
    queries: Sequence[str] | str | None = None,
    keys: Sequence[str] | str | None = None,
    mask: Any = None,
    *,
    values: bool = False,
    titles: Sequence[str] | None = None,
    vmax: float | None = None,
    scores: bool = False,
) -> Heatmap:
    """Draw weights of attention, several maps side by side, from 0 to 100% on one scale of colours.

    Args:
        weights: of one text, (queries, keys) or (maps, queries, keys), or a list of (queries, keys): tensors, which may
            require a gradient, or numpy arrays.
        queries: the tokens that ask, one for each row; a text is split into its words; without them, numbers.
        keys: the tokens that are looked at, one for each column; without them, they are the queries.
        mask: True where a query may attend to a key; what it hides is hatched.
        values: write the number into each cell of the figure.
        titles: of each map; without them, they are heads.
        vmax: the weight that has the strongest colour, 1 for 100%.
        scores: whether these are scores, of which 0 is in the middle of the colours. A score of -inf is hidden.

    Returns:
        What a notebook shows as a figure, and `print` as text; `.save(path)` writes a .png or .svg file.

    Raises:
        BadInput: the weights are not those of one text, or there are more or fewer names than are needed.
    """
    maps = read_tensor(weights).cpu().float()
    if maps.ndim < 2 or maps.shape[:-3].numel() != 1 or not maps.numel():
        shape = tuple(maps.shape)
        raise BadInput(f"weights have the shape {shape}, expected (queries, keys) or (heads, queries, keys) of a text")
    maps = maps.reshape(-1, *maps.shape[-2:])
    hidden = torch.zeros_like(maps, dtype=torch.bool)
    if mask is not None:
        hidden = ~read_tensor(mask).bool().expand(maps.shape)
    if scores:
        hidden, maps = hidden | maps.isneginf(), maps.masked_fill(maps.isneginf(), 0.0)
        vmax = vmax or float(maps.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    names = list(titles or (["weights"] if len(maps) == 1 else [f"head {head}" for head in range(len(maps))]))
    if len(names) != len(maps):
        raise BadInput(f"there are {len(names)} titles for {len(maps)} maps")
    asking = _name_tokens("queries", queries, maps.shape[-2])
    seen = _name_tokens("keys", queries if keys is None else keys, maps.shape[-1])
    return Heatmap(maps, hidden, asking, seen, names, values, vmax or 1.0, scores)


def _name_tokens(what: str, tokens: Sequence[str] | str | None, count: int) -> list[str]:
    if tokens is None:
        return [str(place) for place in range(count)]
    names = tokens.split() if isinstance(tokens, str) else [str(token) for token in tokens]
    if len(names) != count:
        raise BadInput(f"weights are for {count} {what}, and there are {len(names)} tokens to name them")
    return names


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


def draw_figure(heatmap: Heatmap) -> "Figure":
    """Draw all maps on one scale of colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    columns = min(len(heatmap.maps), ABREAST)
    rows = math.ceil(len(heatmap.maps) / columns)
    width, height = (min(max(3.2, 0.3 * len(x) + 1.2), 6.0) for x in (heatmap.keys, heatmap.queries))
    figure = Figure(figsize=(columns * width + 1.0, rows * height + 0.5), dpi=110, layout="constrained")
    for place in range(len(heatmap.maps)):
        _draw_map(figure.add_subplot(rows, columns, place + 1), heatmap, place)
    bar = figure.colorbar(ScalarMappable(heatmap.scale, heatmap.colours), ax=figure.axes, shrink=0.8)
    bar.set_label("score" if heatmap.scores else "weight")
    if not heatmap.scores:
        bar.ax.yaxis.set_major_formatter("{x:.0%}")
    if heatmap.hidden.any():
        patch = Patch(label="hidden by the mask", **HATCHED)
        figure.legend(handles=[patch], frameon=False, loc="outside lower center")
    return figure


def _draw_map(axes: "Axes", heatmap: Heatmap, place: int) -> None:
    """Draw one map; what the mask hides, and has no weight, shows the hatched ground."""
    numbers, hidden = heatmap.maps[place].double().numpy(), heatmap.hidden[place].numpy()
    axes.patch.set(**HATCHED)
    colours = heatmap.colours(heatmap.scale(np.ma.masked_invalid(numbers)))
    colours[hidden & (numbers == 0.0), 3] = 0.0
    # "auto" averages the weights that share a pixel, where "nearest" picks one of them and draws a moiré.
    axes.imshow(colours, interpolation="auto")
    # parse_math: a dollar sign in the text does not begin a formula.
    axes.set_title(heatmap.titles[place], parse_math=False)
    axes.set(xlabel="key", ylabel="query")
    if len(heatmap.keys) <= LABELLED:
        axes.set_xticks(range(len(heatmap.keys)), heatmap.keys, rotation=90, parse_math=False)
    if len(heatmap.queries) <= LABELLED:
        axes.set_yticks(range(len(heatmap.queries)), heatmap.queries, parse_math=False)
    for (query, key), x in np.ndenumerate(numbers) if heatmap.values else ():
        if x or not hidden[query, key]:
            axes.text(key, query, heatmap.write(x), ha="center", va="center", fontsize=7, color=heatmap.paint(x)[1])

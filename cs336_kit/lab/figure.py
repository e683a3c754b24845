"""Attention as a figure, and how the lab writes figures."""

import base64
import io
import math
from pathlib import Path
from warnings import catch_warnings

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.picture import DARK, HIGH, LABELLED, LOW, NOT_A_NUMBER, Pattern, Picture

ABREAST = 4
WIDTH = 16.0  # inches, at most, of maps that stand abreast
DOTS_PER_INCH = 110
HATCH = "#b0b0b0"


def draw_picture(picture: Picture) -> Figure:
    """Draw all patterns on one scale of colours; cells that a mask hides are hatched."""
    patterns = picture.patterns
    width, left = _extent(picture.keys, picture.queries)
    height, below = _extent(picture.queries, picture.keys)
    heads = len({pattern.head for pattern in patterns})
    columns = len(patterns) if len(patterns) <= ABREAST else heads
    columns = max(1, min(columns, ABREAST, int(WIDTH / (width + left))))
    rows = math.ceil(len(patterns) / columns)
    figure = Figure(
        figsize=(columns * (width + left) + 1.0, rows * (height + below)),
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1),
    )
    colours = LinearSegmentedColormap.from_list("weights", [LOW, HIGH]).with_extremes(bad=NOT_A_NUMBER)
    scale = Normalize(0.0, picture.scale)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(patterns) :]:
        axes.remove()
    for axes, pattern in zip(grid.flat, patterns, strict=False):
        # "auto" averages the weights that share a pixel, where "nearest" picks one of them and draws a moiré.
        axes.imshow(pattern.weights.double().numpy(), cmap=colours, norm=scale, interpolation="auto")
        if pattern.hidden is not None and pattern.hidden.any():
            _hatch(axes, pattern.hidden)
        if picture.values:
            _write_values(axes, pattern, picture.scale)
        axes.set_title(pattern.title)
        axes.set_xlabel("key (is looked at)")
        axes.set_ylabel("query (asks)")
        # parse_math: a dollar sign in the text does not begin a formula.
        if len(picture.keys) <= LABELLED:
            axes.set_xticks(range(len(picture.keys)), picture.keys, rotation=90, parse_math=False)
        if len(picture.queries) <= LABELLED:
            axes.set_yticks(range(len(picture.queries)), picture.queries, parse_math=False)
    shown = list(grid.flat[: len(patterns)])
    figure.colorbar(
        ScalarMappable(scale, colours),
        ax=shown,
        label="weight",
        format=PercentFormatter(1.0),
        extend="max" if len(picture.keys) > LABELLED else "neither",
        shrink=0.8,
        aspect=20 * rows,
    )
    return figure


def _extent(along: list[str], beside: list[str]) -> tuple[float, float]:
    """Compute how long a map is along one axis, and how much room the other axis' words take there, in inches."""
    long = max(2.4, 0.28 * len(along)) if len(along) <= LABELLED else 4.0
    return long, 0.08 * max(map(len, beside)) + 0.7 if len(beside) <= LABELLED else 0.7


def _hatch(axes: Axes, hidden: Tensor) -> None:
    """Cover the hidden cells, each run of them in a row as one rectangle."""
    outlines = []
    for query, row in enumerate(hidden.tolist()):
        edges = [key for key in range(len(row) + 1) if (key < len(row) and row[key]) != (key > 0 and row[key - 1])]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            left, right, top, bottom = start - 0.5, end - 0.5, query - 0.5, query + 0.5
            outlines.append(Outline([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]))
    axes.add_patch(
        PathPatch(Outline.make_compound_path(*outlines), hatch="//", facecolor="none", edgecolor=HATCH, linewidth=0)
    )


def _write_values(axes: Axes, pattern: Pattern, scale: float) -> None:
    for query, row in enumerate(pattern.weights.tolist()):
        for key, weight in enumerate(row):
            if pattern.hidden is None or not pattern.hidden[query, key] or weight:
                colour = "white" if weight / scale > DARK else "black"
                axes.text(key, query, f"{100 * weight:.0f}", ha="center", va="center", fontsize=7, color=colour)


def save_figure(figure: Figure, path: Path) -> list[str]:
    """Write the figure in the format of the suffix, PNG or SVG.

    Returns:
        A line to be said with it, if the figure cannot show all of the text.

    Raises:
        BadInput: the file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    # Text of an SVG stays text: small, and every script in the reader's own font. The same picture, the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}), catch_warnings(record=True) as caught:
        try:
            figure.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else None)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    missing = kind == "png" and any("Glyph" in str(warning.message) for warning in caught)
    return ["Some signs of the text are in no font that the figure has: a page, -o page.html, shows them."] * missing


def as_image(figure: Figure) -> str:
    """The figure as an HTML element with the picture in it, for a notebook."""
    file = io.BytesIO()
    with catch_warnings(record=True):  # of signs that are in no font
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
    data = base64.b64encode(file.getvalue()).decode()
    width = round(figure.get_figwidth() * 72)
    return f'<img style="width: {width}px; max-width: 100%" src="data:image/png;base64,{data}">'

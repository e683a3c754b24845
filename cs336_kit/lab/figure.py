"""Attention as a figure, and as an animation of how it changes while a classifier learns."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import PercentFormatter
from PIL import Image
from torch import Tensor

from cs336_kit.lab.bad_input import reject_unwritable
from cs336_kit.lab.picture import DARK, HIGH, LABELLED, LOW, NOT_A_NUMBER, Pattern, Picture

ABREAST = 4
WIDTH = 16.0  # inches, at most, of maps that stand abreast
HATCH = "#b0b0b0"

# Of an animation.
MILLISECONDS = 200
LAST_MILLISECONDS = 3000
DOTS_PER_INCH = 80

# The accuracy on held-out texts after an epoch, and the weights then.
Frame = tuple[float, Float[Tensor, "layers heads queries keys"]]


def draw_picture(picture: Picture) -> Figure:
    """Draw all patterns on one scale of colours; cells that a mask hides are hatched."""
    patterns = picture.patterns
    width, left = _measure_map(picture.keys, picture.queries)
    height, below = _measure_map(picture.queries, picture.keys)
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
        if pattern.hidden.any():
            _hatch_cells(axes, pattern.hidden)
        if picture.values:
            _write_values(axes, pattern, picture.scale)
        axes.set(title=pattern.title, xlabel="key (is looked at)", ylabel="query (asks)")
        # parse_math: a dollar sign in the text does not begin a formula.
        if len(picture.keys) <= LABELLED:
            axes.set_xticks(range(len(picture.keys)), picture.keys, rotation=90, parse_math=False)
        if len(picture.queries) <= LABELLED:
            axes.set_yticks(range(len(picture.queries)), picture.queries, parse_math=False)
    figure.colorbar(
        ScalarMappable(scale, colours),
        ax=list(grid.flat[: len(patterns)]),
        label="weight",
        format=PercentFormatter(1.0),
        extend="max" if len(picture.keys) > LABELLED else "neither",
        shrink=0.8,
        aspect=20 * rows,
    )
    return figure


def _measure_map(along: list[str], beside: list[str]) -> tuple[float, float]:
    """Compute how long a map is along one axis, and how much room the other axis' words take there, in inches."""
    long = max(2.4, 0.28 * len(along)) if len(along) <= LABELLED else 4.0
    return long, 0.08 * max(map(len, beside)) + 0.7 if len(beside) <= LABELLED else 0.7


def _hatch_cells(axes: Axes, hidden: Tensor) -> None:
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
            if not pattern.hidden[query, key] or weight:
                colour = "white" if weight / scale > DARK else "black"
                axes.text(key, query, f"{100 * weight:.0f}", ha="center", va="center", fontsize=7, color=colour)


def write_animation(path: Path, words: Sequence[str], frames: Sequence[Frame]) -> None:
    """Write one picture for each frame, with every head side by side; all share one scale, from 0 to 1.

    Raises:
        BadInput: the file cannot be written.
    """
    pictures = list(_draw_frames(words, frames))
    palette = pictures[-1].quantize()  # one for all, so that nothing flickers
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [MILLISECONDS] * len(others) + [LAST_MILLISECONDS]
    with reject_unwritable(path):
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0)


def _draw_frames(words: Sequence[str], frames: Sequence[Frame]) -> Iterator[Image.Image]:
    """Draw the axes once, and what changes in each frame: laying out axes takes far longer than filling them."""
    layers, heads = frames[0][1].shape[:2]
    side = max(3.2, 0.3 * len(words))
    figure = Figure(figsize=(heads * side + 2.2, layers * side + 1.6), layout="constrained", dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
    places = range(len(words))
    images = {}
    for (layer, head), axes in np.ndenumerate(grid):
        blank = np.zeros((len(words), len(words)))
        images[layer, head] = axes.imshow(blank, vmin=0.0, vmax=1.0, cmap="Blues", animated=True)
        axes.set(title=f"layer {layer}, head {head}" if layers > 1 else f"head {head}")
        axes.set_xticks(places, words, rotation=90, parse_math=False)
        axes.set_yticks(places, words, parse_math=False)
        axes.set(xlabel="key (is looked at)", ylabel="query (asks)")
        axes.label_outer()
    figure.colorbar(images[0, 0], ax=list(grid.flat), label="weight", format=PercentFormatter(1.0), shrink=0.8)
    title = figure.suptitle("", animated=True)
    canvas.draw()  # all but what is animated
    empty = canvas.copy_from_bbox(figure.bbox)
    for epoch, (accuracy, weights) in enumerate(frames):
        canvas.restore_region(empty)
        for (layer, head), image in images.items():
            image.set_data(weights[layer, head].numpy())
            for artist in (image, *image.axes.spines.values()):
                figure.draw_artist(artist)
        title.set_text(f"epoch {epoch:2}: {accuracy:4.0%} of the held-out texts right")
        figure.draw_artist(title)
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

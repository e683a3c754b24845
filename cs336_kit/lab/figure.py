"""Attention as a figure, and as an animation of how it changes while a classifier learns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure, FigureBase
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from PIL import Image
from torch import Tensor

from cs336_kit.lab.bad_input import reject_unwritable
from cs336_kit.lab.picture import LABELLED, LINES, NOT_A_NUMBER, WARNING, Pattern, Picture, choose_ink

ABREAST = 4
WIDTH = 16.0  # inches, at most, of maps that stand abreast
LINE, LETTERS = 16, 11  # points of a line of text, and letters of an inch
HATCH, HATCHING = "///", "#909090"

# Of an animation.
MILLISECONDS = 200
LAST_MILLISECONDS = 3000
DOTS_PER_INCH = 80

# The accuracy on held-out texts after an epoch, and the weights then.
Frame = tuple[float, Float[Tensor, "layers heads queries keys"]]


def draw_picture(picture: Picture) -> Figure:
    """Draw all patterns on one scale of colours, with what is wrong with them below."""
    patterns = picture.patterns
    width, left = _measure_map(picture.keys, picture.queries)
    height, below = _measure_map(picture.queries, picture.keys)
    one_row = len(patterns) <= ABREAST and len({pattern.layer for pattern in patterns}) == 1
    columns = len(patterns) if one_row else len({pattern.head for pattern in patterns})
    columns = max(1, min(columns, ABREAST, int(WIDTH / (width + left))))
    rows = math.ceil(len(patterns) / columns)
    figure = Figure(
        figsize=(columns * (width + left) + 1.0, rows * (height + below)),
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1),
    )
    for place, pattern in enumerate(patterns, start=1):
        _paint_pattern(figure.add_subplot(rows, columns, place), picture, pattern)
    _add_scale(figure, figure.axes, picture, aspect=20 * rows)
    more = _add_legend(figure, picture, loc="outside lower center")
    if picture.title:
        figure.suptitle(picture.title, parse_math=False)
        more += 2 * LINE
    figure.set_figheight(figure.get_figheight() + more / 72)
    return figure


def draw_on(axes: Axes, picture: Picture) -> None:
    """Draw the only pattern of a picture on axes that there are already."""
    (pattern,) = picture.patterns
    _paint_pattern(axes, picture, pattern)
    _add_scale(axes.figure, axes, picture)
    height = _add_legend(axes, picture, loc="lower left", bbox_to_anchor=(0, 1.02), borderaxespad=0)
    axes.set_title(picture.title or pattern.title, pad=8 + height, parse_math=False)


def _measure_map(along: list[str], beside: list[str]) -> tuple[float, float]:
    """Compute how long a map is along one axis, and how much room the other axis' words take there, in inches."""
    long = max(2.4, 0.28 * len(along)) if len(along) <= LABELLED else 4.0
    return long, 0.08 * max(map(len, beside)) + 0.7 if len(beside) <= LABELLED else 0.7


def _paint_pattern(axes: Axes, picture: Picture, pattern: Pattern) -> None:
    """Draw the map, with lines between its cells where they have room; cells that a mask hides are hatched."""
    scale, colours = _make_scale(picture)
    # "auto" averages the weights that share a pixel, where "nearest" picks one of them and draws a moiré.
    axes.imshow(pattern.weights.double().numpy(), cmap=colours, norm=scale, interpolation="auto")
    for query, row in enumerate(pattern.hidden.numpy()):
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False)).reshape(-1, 2)
        runs = [(start - 0.5, end - start) for start, end in edges]
        axes.broken_barh(runs, (query - 0.5, 1), facecolor="none", edgecolor=HATCHING, hatch=HATCH, linewidth=0)
    queries, keys = len(picture.queries), len(picture.keys)
    axes.set(xlabel="key (is looked at)", ylabel="query (asks)", xlim=(-0.5, keys - 0.5), ylim=(queries - 0.5, -0.5))
    # parse_math: a dollar sign in the text does not begin a formula.
    axes.set_title(pattern.title, parse_math=False)
    if keys <= LABELLED:
        axes.set_xticks(range(keys), picture.keys, rotation=90, parse_math=False)
    if queries <= LABELLED:
        axes.set_yticks(range(queries), picture.queries, parse_math=False)
    if max(queries, keys) <= LABELLED:
        axes.vlines(np.arange(1, keys) - 0.5, -0.5, queries - 0.5, LINES, linewidth=0.5)
        axes.hlines(np.arange(1, queries) - 0.5, -0.5, keys - 0.5, LINES, linewidth=0.5)
    if picture.values:
        for (query, key), weight in np.ndenumerate(pattern.weights.numpy()):
            if not pattern.hidden[query, key] or weight:
                ink = choose_ink(*colours(scale(weight))[:3])
                axes.text(key, query, picture.write(weight), ha="center", va="center", fontsize=7, color=ink)


def _make_scale(picture: Picture) -> tuple[Normalize, Colormap]:
    colours = LinearSegmentedColormap.from_list("", picture.colours[0]).with_extremes(bad=NOT_A_NUMBER)
    return Normalize(picture.vmin, picture.vmax), colours


def _add_scale(figure: FigureBase, of: "Axes | list[Axes]", picture: Picture, aspect: float = 20) -> None:
    """Add the bar of colours."""
    weights = picture.weights
    figure.colorbar(
        ScalarMappable(*_make_scale(picture)),
        ax=of,
        label="score" if picture.scores else "weight",
        format=None if picture.scores else PercentFormatter(1.0),
        extend="max" if (weights[weights.isfinite()] > 1.001 * picture.vmax).any() else "neither",
        shrink=0.8,
        aspect=aspect,
    )


def _add_legend(place: Any, picture: Picture, **where: Any) -> float:
    """Say what cells without a colour of the scale are, and what is wrong with the weights; its height in points."""
    inches = place.get_window_extent().width / place.figure.dpi
    cells, warnings = [], [part for line in picture.warnings() for part in wrap(line, int(LETTERS * inches))]
    if picture.hidden.any():
        cells.append(
            Patch(facecolor="none", edgecolor=HATCHING, hatch=HATCH, linewidth=0.5, label="hidden by the mask")
        )
    if not picture.weights.isfinite().all():
        cells.append(Patch(facecolor=NOT_A_NUMBER, label="NaN or infinite"))
    if cells or warnings:
        legend = place.legend(handles=cells, ncols=2, frameon=False, title="\n".join(warnings), **where)
        legend.get_title().set_color(WARNING)
    return LINE * (len(warnings) + bool(cells))


def write_animation(path: Path, picture: Picture, frames: Sequence[Frame]) -> None:
    """Write one picture for each frame, with the patterns of this one side by side.

    Raises:
        BadInput: the file cannot be written.
    """
    images = list(_draw_frames(picture, frames))
    palette = images[-1].quantize()  # one for all, so that nothing flickers
    first, *others = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [MILLISECONDS] * len(others) + [LAST_MILLISECONDS]
    with reject_unwritable(path):
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0)


def _draw_frames(picture: Picture, frames: Sequence[Frame]) -> Iterator[Image.Image]:
    """Draw the axes once, and what changes in each frame: laying out axes takes far longer than filling them."""
    figure = draw_picture(replace(picture, title="epoch"))
    figure.set_dpi(DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    maps, title = figure.axes[: len(picture.patterns)], figure.suptitle("epoch", animated=True)
    for axes in maps:
        axes.images[0].set_animated(True)
    canvas.draw()  # all but what is animated
    empty = canvas.copy_from_bbox(figure.bbox)
    for epoch, (accuracy, weights) in enumerate(frames):
        canvas.restore_region(empty)
        for axes, pattern in zip(maps, weights.flatten(0, 1), strict=True):
            axes.images[0].set_data(pattern.numpy())
            for artist in (*axes.images, *axes.collections, *axes.spines.values()):
                figure.draw_artist(artist)
        title.set_text(f"epoch {epoch:2}: {accuracy:4.0%} of the held-out texts right")
        figure.draw_artist(title)
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

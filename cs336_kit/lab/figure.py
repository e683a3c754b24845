"""A heat map as a figure of matplotlib."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cs336_kit.lab.heatmap import Heatmap

LABELLED = 40  # more tokens have no room for their words
ABREAST = 4
HATCHED = {"facecolor": "white", "edgecolor": "#909090", "hatch": "///", "linewidth": 0}


def draw_figure(heatmap: Heatmap) -> Figure:
    """Draw all maps on one scale of colours."""
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


def _draw_map(axes: Axes, heatmap: Heatmap, place: int) -> None:
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

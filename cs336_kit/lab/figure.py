"""Attention as a figure, PNG or SVG."""

import math
from pathlib import Path

from matplotlib import rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from cs336_kit.lab.picture import HIGH, LOW, NOT_A_NUMBER, Picture

LABELLED = 40  # more tokens have no room for their words
ABREAST = 4


def write_figure(picture: Picture, path: Path) -> None:
    """Draw all patterns on one scale of colours and write them to `path`, in the format of its suffix."""
    tokens, patterns = picture.tokens, picture.patterns
    columns = min(ABREAST, len(patterns))
    rows = math.ceil(len(patterns) / columns)
    labelled = len(tokens) <= LABELLED
    side = max(2.4, 0.28 * len(tokens)) if labelled else 4.0
    margin = 0.08 * max(map(len, tokens)) + 0.4 if labelled else 0.6
    figure = Figure(figsize=(columns * (side + margin) + 0.8, rows * (side + margin)), layout="constrained")
    colours = LinearSegmentedColormap.from_list("weights", [LOW, HIGH]).with_extremes(bad=NOT_A_NUMBER)
    scale = Normalize(0.0, picture.largest)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(patterns) :]:
        axes.remove()
    for axes, pattern in zip(grid.flat, patterns, strict=False):
        axes.imshow(pattern.weights.double().numpy(), cmap=colours, norm=scale, interpolation="nearest")
        axes.set_title(pattern.title)
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        if labelled:
            # parse_math: a dollar sign in the text is no formula.
            axes.set_xticks(range(len(tokens)), tokens, rotation=90, parse_math=False)
            axes.set_yticks(range(len(tokens)), tokens, parse_math=False)
    shown = list(grid.flat[: len(patterns)])
    figure.colorbar(ScalarMappable(scale, colours), ax=shown, label="weight", shrink=0.8)
    # Text of an SVG stays text: small, and every script in the reader's own font.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}):
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)

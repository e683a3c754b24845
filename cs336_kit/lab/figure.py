"""Attention as a figure, PNG or SVG."""

import math
from pathlib import Path
from warnings import catch_warnings

from matplotlib import rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from cs336_kit.lab.picture import HIGH, LOW, NOT_A_NUMBER, Picture

LABELLED = 40  # more tokens have no room for their words
ABREAST = 4
WIDTH = 16.0  # inches, at most, of maps that stand abreast


def write_figure(picture: Picture, path: Path) -> list[str]:
    """Draw all patterns on one scale of colours and write them to `path`, in the format of its suffix.

    Returns:
        A line to be said with the figure, if it cannot show all of the text.
    """
    tokens, patterns = picture.tokens, picture.patterns
    labelled = len(tokens) <= LABELLED
    side = max(2.4, 0.28 * len(tokens)) if labelled else 4.0
    margin = 0.08 * max(map(len, tokens)) + 0.4 if labelled else 0.6
    heads = len({pattern.head for pattern in patterns})
    columns = len(patterns) if len(patterns) <= ABREAST else heads
    columns = max(1, min(columns, ABREAST, int(WIDTH / (side + margin))))
    rows = math.ceil(len(patterns) / columns)
    figure = Figure(
        figsize=(columns * (side + margin) + 0.8, rows * (side + margin)),
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1),
    )
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
    figure.colorbar(ScalarMappable(scale, colours), ax=shown, label="weight", shrink=0.8, aspect=20 * rows)
    # Text of an SVG stays text: small, and every script in the reader's own font.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}), catch_warnings(record=True) as caught:
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    missing = path.suffix == ".png" and any("Glyph" in str(warning.message) for warning in caught)
    return ["Some signs of the text are in no font that the figure has: a page, -o page.html, shows them."] * missing

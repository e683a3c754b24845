"""Show how the attention in one text changes while a classifier learns, as an animated GIF."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from PIL import Image
from torch import Tensor

from cs336_kit.lab.training import Progress

MILLISECONDS = 200
LAST_MILLISECONDS = 3000
DOTS_PER_INCH = 80
COLOURS = 256


# How things stood after an epoch, and the weights then: (layer, head, query, key).
Frame = tuple[Progress, Float[Tensor, "layer head queries keys"]]


def write_animation(path: Path, words: Sequence[str], frames: Sequence[Frame]) -> None:
    """Write one picture for each frame, with every head side by side; all share one scale, from 0 to 1."""
    drawn = list(_drawn(words, frames))
    palette = drawn[-1].quantize(COLOURS)  # one for all, so that nothing flickers
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in drawn]
    durations = [MILLISECONDS] * len(others) + [LAST_MILLISECONDS]
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0)


def _drawn(words: Sequence[str], frames: Sequence[Frame]) -> Iterator[Image.Image]:
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
    for axes in grid[-1]:
        axes.set_xlabel("key (is looked at)")
    for axes in grid[:, 0]:
        axes.set_ylabel("query (asks)")
    figure.colorbar(images[0, 0], ax=list(grid.flat), label="weight", format=PercentFormatter(1.0), shrink=0.8)
    title = figure.suptitle(_title(frames[0][0]), animated=True)
    canvas.draw()  # all but what is animated
    empty = canvas.copy_from_bbox(figure.bbox)
    for progress, weights in frames:
        canvas.restore_region(empty)
        for (layer, head), image in images.items():
            image.set_data(weights[layer, head].numpy())
            for artist in (image, *image.axes.spines.values()):
                figure.draw_artist(artist)
        title.set_text(_title(progress))
        figure.draw_artist(title)
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _title(progress: Progress) -> str:
    return f"epoch {progress.epoch:2}: {progress.accuracy:4.0%} of the held-out texts right"

"""Show how the attention in one text changes while a classifier learns, as an animated GIF."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
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
    drawn = [_drawn(words, *frame) for frame in frames]
    palette = drawn[-1].quantize(COLOURS)  # one for all, so that nothing flickers
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in drawn]
    durations = [MILLISECONDS] * len(others) + [LAST_MILLISECONDS]
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0)


def _drawn(words: Sequence[str], progress: Progress, weights: Float[Tensor, "layer head queries keys"]) -> Image.Image:
    layers, heads = weights.shape[:2]
    side = max(3.2, 0.3 * len(words))
    figure = Figure(figsize=(heads * side + 2.2, layers * side + 1.6), layout="constrained", dpi=DOTS_PER_INCH)
    grid = figure.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
    places = range(len(words))
    for (layer, head), axes in np.ndenumerate(grid):
        axes.imshow(weights[layer, head].numpy(), vmin=0.0, vmax=1.0, cmap="Blues")
        axes.set(title=f"layer {layer}, head {head}" if layers > 1 else f"head {head}")
        axes.set_xticks(places, words, rotation=90, parse_math=False)
        axes.set_yticks(places, words, parse_math=False)
    for axes in grid[-1]:
        axes.set_xlabel("key (is looked at)")
    for axes in grid[:, 0]:
        axes.set_ylabel("query (asks)")
    figure.colorbar(grid[0, 0].images[0], ax=list(grid.flat), label="weight", format=PercentFormatter(1.0), shrink=0.8)
    figure.suptitle(f"epoch {progress.epoch:2}: {progress.accuracy:4.0%} of the held-out texts right")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file).convert("RGB")
